"""Find changes of a request with which a run, new or pending, would start sooner or cost less.

Each is tried with ``sbatch --test-only``. A start behind queued jobs counts as no gain; a full
limit counts as wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import yaml

from hpcflow.documents import Document
from hpcflow.errors import SpecError, shell_word
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import Run
from hpcflow.model.spec import RunSpec
from hpcflow.model.units import write_duration
from hpcflow.pending.advice import sizes_that_fit
from hpcflow.pending.why import Wait
from hpcflow.placement.choice import Ranked
from hpcflow.placement.choosing import Chooser
from hpcflow.schedulers.slurm.reasons import Kind
from hpcflow.sites.placement import Placement, next_placement
from hpcflow.sites.schema import Site

#: Smaller gains, in time and as a ratio of costs, are ignored.
_SOONER_S: Final = 300.0
_CHEAPER: Final = Decimal("0.95")
#: A start within a minute counts as now.
NOW_S: Final = 60.0
_SHORTEST_MIN: Final = 10
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


@dataclass(frozen=True)
class Alternative:
    """A changed request.

    Attributes:
        key, value: the changed key of ``resources``, and its new value.
        ranked: the best place for it.
        sooner_s: how much earlier it would start, at least; None if the start of the unchanged run
            is unknown.
        is_cheaper: whether the same work would cost less.
        slower: how many times longer the same work takes at most; 1 for as long.
    """

    key: str
    value: Any
    ranked: Ranked
    sooner_s: float | None
    is_cheaper: bool
    slower: int

    @property
    def change(self) -> str:
        """Return the argument of ``--set`` for it, quoted for a shell."""
        value = self.value
        if self.key == "time_limit":
            value = write_duration(60 * value)
        return f"resources.{self.key}={_as_text(value) if isinstance(value, str) else value}"


@dataclass(frozen=True)
class Baseline:
    """The unchanged run, to compare alternatives with.

    Attributes:
        waits_s: seconds until it starts; None if unknown.
        resubmitted_s: seconds until it would start if it were resubmitted unchanged; None if
            unknown.
        never: whether it never starts.
        ranked: its ranked place; None if costs are not compared.
    """

    placement: Placement
    waits_s: float | None
    resubmitted_s: float | None = None
    never: bool = False
    ranked: Ranked | None = None


def alternatives(
    spec: RunSpec,
    now: Baseline,
    chooser: Chooser,
    document: Document | None = None,
    more: Iterable[tuple[str, Any]] = (),
) -> list[Alternative]:
    """Return changes with which the run would start minutes sooner, or cost less; soonest first.

    Args:
        more: further keys of ``resources`` and values to try.
    """
    found = []
    for key, value in dict.fromkeys((*more, *_changes(spec, now.placement, chooser))):
        other = _best(spec, {key: value}, chooser, document)
        if other is None or _is_gain_of_partition(spec, now, other, chooser):
            continue
        each = _compared(key, value, spec, now, other)
        if each is not None:
            found.append(each)
    limits = [each.value for each in found if each.key == "time_limit"]
    longest = [each for each in found if each.key != "time_limit" or each.value == max(limits)]
    return sorted(longest, key=lambda each: each.ranked.candidate.waits_s or 0.0)


def _best(
    spec: RunSpec, update: dict[str, Any], chooser: Chooser, document: Document | None
) -> Ranked | None:
    """Return the best place for a run with changed resources; None if there is none."""
    names = {"time_limit": "time_limit_min"}
    resources = spec.resources.model_copy(
        update={names.get(key, key): value for key, value in update.items()}
    )
    try:
        return chooser.best(spec.model_copy(update={"resources": resources}), document)
    except SpecError:
        return None


def _is_gain_of_partition(spec: RunSpec, now: Baseline, other: Ranked, chooser: Chooser) -> bool:
    """Return whether the unchanged run would start as soon in the alternative's partition."""
    name = other.candidate.placement.partition
    if name == now.placement.partition or spec.resources.partition != AUTO:
        return False
    there = _best(spec, {"partition": name}, chooser, None)
    then, changed = there.candidate.waits_s if there else None, other.candidate.waits_s
    return then is not None and changed is not None and then < changed + _SOONER_S


def _changes(spec: RunSpec, placement: Placement, chooser: Chooser) -> Iterator[tuple[str, Any]]:
    resources = spec.resources
    if resources.partition != AUTO:
        for name in chooser.partitions(spec):
            if name != placement.partition:
                yield "partition", name
    if resources.account != AUTO:
        for account in chooser.forecast.accounts:
            if account != chooser.forecast.account(placement):
                yield "account", account
    for qos in chooser.forecast.other_qos(placement):
        yield "qos", qos
    if resources.nodes > 1:
        yield "nodes", resources.nodes // 2
    elif resources.gpus_per_node > 1:
        yield "gpus_per_node", resources.gpus_per_node // 2
    limit_min = placement.time_limit_min or 0
    shorter = [chooser.forecast.gap_min(placement), limit_min // 2, limit_min // 4]
    for each in shorter:
        if each is not None and _SHORTEST_MIN <= each < limit_min:
            yield "time_limit", each


def _compared(
    key: str, value: Any, spec: RunSpec, now: Baseline, other: Ranked
) -> Alternative | None:
    """Compare an alternative with the unchanged run; return None if it is no better."""
    candidate = other.candidate
    then = candidate.waits_s
    before = getattr(spec.resources, key) if key in ("nodes", "gpus_per_node") else None
    slower = -(-before // value) if before is not None and 0 < value < before else 1
    sooner_s = None if now.waits_s is None or then is None else now.waits_s - then
    is_sooner = sooner_s is not None and sooner_s >= _SOONER_S
    if now.waits_s is None:
        is_sooner = then is not None and (now.never or then < NOW_S)
    if candidate.start is not None and candidate.start.is_estimate:
        is_sooner = False
    if now.resubmitted_s is not None and (then is None or now.resubmitted_s - then < _SOONER_S):
        is_sooner = False  # resubmitting alone gains as much
    is_cheaper = key in ("partition", "account", "qos") and _costs_less(other, now.ranked)
    if not is_sooner and not is_cheaper:
        return None
    return Alternative(key, value, other, sooner_s, is_cheaper, slower)


def _costs_less(other: Ranked, best: Ranked | None) -> bool:
    return (
        best is not None
        and best.cost is not None
        and other.cost is not None
        and best.unit == other.unit
        and other.cost < best.cost * _CHEAPER
    )


def _as_text(name: str) -> str:
    """Return ``name`` quoted so that ``--set`` reads a string, and a shell one word."""
    is_text = yaml.safe_load(name) == name
    return shell_word(name if is_text else json.dumps(name))


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
