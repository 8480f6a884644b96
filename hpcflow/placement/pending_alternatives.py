"""Suggest other requests with which a pending run would start sooner; each is tried."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from hpcflow.errors import SpecError
from hpcflow.model.run import Run
from hpcflow.pending.advice import sizes_that_fit
from hpcflow.pending.why import Wait
from hpcflow.placement.alternatives import Alternative, Baseline, alternatives
from hpcflow.placement.choosing import Chooser
from hpcflow.placement.next_placement import next_placement
from hpcflow.schedulers.slurm.reasons import Kind
from hpcflow.sites.schema import Site

#: Reasons that another request may change.
_BY_REQUEST: Final = (
    Kind.TURN,
    Kind.ROOM,
    Kind.LIMIT,
    Kind.TOO_LARGE,
    Kind.NEVER,
    Kind.RESERVATION,
    Kind.NODES,
    Kind.PARTITION,
)
_OF_THE_QUEUE: Final = (Kind.TURN, Kind.ROOM)


def pending_alternatives(
    run: Run, wait: Wait, site: Site, chooser: Chooser, now: datetime
) -> list[Alternative]:
    """Return changes with which a pending run would start minutes sooner, or at all; soonest first.

    Empty if the job waits for its turn and the site hides other users' jobs, or if it waits for a
    limit whose use is unknown.

    Args:
        chooser: made with the pending job ignored.
    """
    kind = wait.reason.kind
    if kind not in _BY_REQUEST or (kind in _OF_THE_QUEUE and not wait.sees_others):
        return []
    standing = chooser.forecast.standing
    if kind is Kind.LIMIT and (standing is None or not standing.is_use_known):
        return []
    never = not wait.reason.can_start
    resources = run.spec.resources.model_copy(update={"partition": run.partition})
    spec = run.spec.model_copy(update={"resources": resources})
    try:
        placement = next_placement(run, site, None)
        again = chooser.best(spec)
    except SpecError:  # the site file has changed since
        return []
    if never and again is not None:
        return []  # trying does not show what blocks the job
    resubmitted_s = again.candidate.waits_s if again is not None else None
    start = wait.job.expected_start
    told_s = max(0.0, (start - now).total_seconds()) if start is not None and not never else None
    waits_s = resubmitted_s if told_s is None else told_s
    as_it_is = Baseline(placement, waits_s, resubmitted_s, never=never)
    fits = sizes_that_fit(wait.job, wait.limits, wait.partition, wait.obstacles)
    return alternatives(spec, as_it_is, chooser, more=fits)
