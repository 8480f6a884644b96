"""Warn about runs that a round leaves alone, and that need their owner."""

from __future__ import annotations

from typing import Final

from hpcflow.errors import shell_word
from hpcflow.ledger.rows import Known
from hpcflow.model.state import AttemptState
from hpcflow.requeue.round_context import RoundContext
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.runs import run_ids

#: How many runs that name another user get a warning each.
_MOST_NAMED: Final = 3


def warn_of_exclusions(context: RoundContext, own: OwnRuns) -> list[str]:
    """Return warnings about jobs that are pending because of the nodes that they exclude.

    hpcflow decides at submission which nodes a job excludes. If other nodes go down while the job
    is pending, only excluded ones may be left.
    """
    known = context.ledger.known(
        context.ledger.pending_for_nodes(user=context.settings.user)
    ).values()
    mine = (each for each in known if own.dir_of(each.run.run_id, each.run.run_dir) is not None)
    return [warning for each in mine if (warning := exclusion_warning(each)) is not None]


def exclusion_warning(known: Known) -> str | None:
    """Return the warning for a run that is pending for nodes; None if it excludes none. Pure.

    The text does not change while the job is pending, so that it is shown once.
    """
    last = max(known.attempts, key=lambda row: row.attempt, default=None)
    if last is None or last.state != AttemptState.QUEUED.value or last.job_id is None:
        return None
    excluded = last.journal.get("intended", {}).get("excluded")
    if not excluded:
        return None
    own = known.run.resources.get("exclude") or ""
    return (
        f"{last.run_id}: job {last.job_id} is pending for nodes that are unavailable, and excludes "
        f"{', '.join(excluded)}; to allow these nodes: scontrol update "
        f"jobid={shell_word(last.job_id)} ExcNodeList={shell_word(own) if own else ''}"
    ).rstrip()


def warn_of_owner_mismatch(context: RoundContext) -> list[str]:
    """Return warnings about runs of this home that name another user as their owner.

    Such runs were created while the name of this user could not be looked up. hpcflow neither
    queries nor resubmits them, because in a shared ledger the name selects each user's own runs.
    """
    home, user = context.settings.home, context.settings.user
    of_others = context.ledger.of_others(user=user)
    if not of_others:  # as in every ledger of one user
        return []
    mine = [run_id for run_id in run_ids(home) if run_id in of_others]
    warnings = [
        f"{run_id}: the run is in your {home.runs}, but its run.json names user "
        f"{of_others[run_id]!r} and not {user!r}, so hpcflow does not supervise it; to change "
        f"this, set user to {user!r} in {home.runs / run_id}/run.json, then: "
        "hpcflow ledger rebuild"
        for run_id in mine[:_MOST_NAMED]
    ]
    if len(mine) > _MOST_NAMED:
        warnings.append(f"{len(mine) - _MOST_NAMED} more runs of yours name another user")
    return warnings
