"""Score the nodes of a site by the failures of attempts on them.

Slurm drains a node that it knows to be dead. This finds the others: nodes that come back after each
failure, or that fail only trainings. docs/operations.md has the rules. :mod:`.exclusion`
selects the nodes that a job excludes.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import groupby
from operator import attrgetter
from typing import Final

from hpcflow.ledger.ends import MOST_ENDS, End
from hpcflow.ledger.store import Ledger
from hpcflow.model.state import Cause
from hpcflow.model.units import counted
from hpcflow.storage.layout import Home
from hpcflow.storage.node_overrides import read_overrides

#: About the time in which an admin handles a bad node.
HALF_LIFE: Final = timedelta(days=1)
#: An older failure has an eighth of its weight or less, and does not count: see SPEAKS_FROM.
LOOK_BACK: Final = 3 * HALF_LIFE
#: Clocks of login nodes and of the controller differ; an end further in the future is ignored.
CLOCKS_DIFFER: Final = timedelta(hours=1)

#: Cause -> weight against the nodes. A vanished job has an unknown end, and a program may fail by
#: itself. Other causes do not count: a node causes no preemption, time limit or cancel, and the run
#: itself requests its memory.
WEIGHTS: Final[dict[Cause, float]] = {
    Cause.NODE_FAIL: 1.0,
    Cause.LAUNCH_FAILED: 1.0,
    Cause.STALLED: 1.0,
    Cause.VANISHED: 0.5,
    Cause.FAILED: 0.5,
}
#: Causes for which the node can be the only reason: the run's next attempt excludes that node.
_HARD: Final = frozenset({Cause.NODE_FAIL, Cause.LAUNCH_FAILED, Cause.STALLED})
#: Causes of attempts that ran well: always, or if they made a checkpoint.
WELL: Final = frozenset({Cause.COMPLETED, Cause.CHECKPOINTED})
WELL_IF_SAVED: Final = frozenset({Cause.PREEMPTED, Cause.TIMEOUT})

RUNS_AGAINST: Final = 2
#: A run counts from this weight on: one failure on one of eight nodes, or one three days ago.
SPEAKS_FROM: Final = 0.125
#: Two runs that each failed on it and one other node (½ + ½), half a day later.
BAD_FROM: Final = 0.7

#: A share below a hundredth says nothing; jobs on more nodes are ignored.
_MOST_NODES: Final = 100
_ATTEMPT: Final = attrgetter("attempt")
#: A valid node name. Others are ignored: jobs write the event files, and users may share a ledger.
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)


@dataclass(frozen=True)
class Standing:
    """The record of one node of a site.

    Attributes:
        score: sum of the weights against it now, at most 1 for each user.
        total: the same sum without the limit for each user; orders nodes with equal scores.
        runs: runs that failed on it.
        heard: how many of them have at least the weight :data:`SPEAKS_FROM`.
        failures: number of failed attempts.
        causes: their causes, the most frequent first.
        ran_well: number of attempts that ran well on it after its first failure.
        partitions: partitions of all attempts on it.
    """

    node: str
    score: float
    runs: tuple[str, ...]
    heard: int
    failures: int
    causes: tuple[Cause, ...]
    last_failure: datetime
    ran_well: int = 0
    partitions: frozenset[str] = frozenset()
    total: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Return whether new attempts should exclude it, if other nodes are better."""
        return self.heard >= RUNS_AGAINST and self.score >= BAD_FROM

    @property
    def why(self) -> str:
        causes = ", ".join(cause.value for cause in self.causes)
        text = f"{counted(self.failures, 'failure')} of {counted(len(self.runs), 'run')} ({causes})"
        if self.ran_well:
            text += f", {counted(self.ran_well, 'attempt')} ran well since"
        if self.is_bad:
            return text
        if len(self.runs) < RUNS_AGAINST:
            return f"{text}; a single run may fail by itself"
        return f"{text}; too few or too old to exclude it"


@dataclass(frozen=True)
class Evidence:
    """The evidence of past attempts about nodes.

    Attributes:
        standings: site -> its nodes with failures, the worst first.
        own: run -> the node that its next attempt excludes: the only node of its last attempt,
            which failed for a reason that can be the node's.
        seen: site -> partition -> number of nodes that these attempts had there.
    """

    standings: Mapping[str, Sequence[Standing]] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Failure:
    node: str
    user: str
    run_id: str
    cause: Cause
    ended_at: datetime
    weight: float


def read_evidence(ledger: Ledger, home: Home, now: datetime) -> Evidence:
    """Return the evidence about nodes now, with the overrides of the user."""
    until = now + CLOCKS_DIFFER
    against = ledger.ends(WEIGHTS, since=now - LOOK_BACK, until=until)
    if not against:
        return Evidence()
    since = min(end.ended_at for end in against)
    well = ledger.ends(WELL | WELL_IF_SAVED, since=since, until=until)
    if len(well) >= MOST_ENDS:
        # Before the oldest of these only failures were read, which would bias the scores.
        oldest = min(end.ended_at for end in well)
        against = [end for end in against if end.ended_at >= oldest]
    return weigh([*against, *well], now, read_overrides(home))


def weigh(
    ends: Iterable[End],
    now: datetime,
    forgiven: Mapping[tuple[str, str], datetime] | None = None,
) -> Evidence:
    """Return the evidence of ``ends``, in any order.

    Args:
        forgiven: (site, node) -> the time up to which failures do not count.
    """
    by_site: dict[str, list[End]] = defaultdict(list)
    for end in ends:
        if end.ended_at <= now + CLOCKS_DIFFER:
            by_site[end.site].append(end)
    own: dict[str, str] = {}
    standings, seen = {}, {}
    for site, of_site in by_site.items():
        until = {node: at for (where, node), at in (forgiven or {}).items() if where == site}
        own.update(_own(of_site, until, now))
        if found := _standings(of_site, until, now):
            standings[site], seen[site] = found, _seen(of_site)
    return Evidence(standings, own, seen)


def _seen(ends: Iterable[End]) -> dict[str, int]:
    nodes: dict[str, set[str]] = defaultdict(set)
    for end in ends:
        if end.partition and len(end.nodes) <= _MOST_NODES:
            nodes[end.partition].update(filter(_NODE_NAME.fullmatch, end.nodes))
    return {partition: len(names) for partition, names in nodes.items()}


def _standings(
    ends: Sequence[End], forgiven: Mapping[str, datetime], now: datetime
) -> list[Standing]:
    """Return the nodes of one site with failures, the worst first."""
    failures = [
        each
        for each in _failures(ends, now)
        if each.node not in forgiven or each.ended_at > forgiven[each.node]
    ]
    well = _ran_well(ends, {failure.node for failure in failures})
    by_node: dict[str, list[_Failure]] = defaultdict(list)
    for failure in failures:
        by_node[failure.node].append(failure)
    partitions: dict[str, set[str]] = defaultdict(set)
    for end in ends:
        for node in by_node.keys() & set(end.nodes):
            partitions[node].add(end.partition or "")
    found = [
        _standing(node, of_node, well[node], frozenset(partitions[node]), now)
        for node, of_node in by_node.items()
    ]
    return sorted(found, key=lambda each: (-each.score, -each.total, each.node))


def _failures(ends: Sequence[End], now: datetime) -> list[_Failure]:
    found = []
    for end, suspects in _with_suspects(ends):
        if end.cause not in WEIGHTS or now - end.ended_at > LOOK_BACK:
            continue
        if len(suspects) > _MOST_NODES:
            continue
        found += [
            _Failure(
                node,
                end.user,
                end.run_id,
                end.cause,
                end.ended_at,
                WEIGHTS[end.cause] / len(suspects),
            )
            for node in sorted(suspects)
            if _NODE_NAME.fullmatch(node)
        ]
    return found


def _with_suspects(ends: Sequence[End]) -> Iterator[tuple[End, set[str]]]:
    """Yield each end with the nodes that may have been its reason."""
    by_run: dict[str, _Later] = defaultdict(_Later)
    newest_first = sorted(ends, key=_ATTEMPT, reverse=True)
    for _, same in groupby(newest_first, _ATTEMPT):
        of_attempt = list(same)  # of several runs: none is a later attempt of another
        yield from ((end, by_run[end.run_id].suspects(end)) for end in of_attempt)
        for end in of_attempt:
            by_run[end.run_id].add(end)


class _Later:
    """The train steps that later attempts of a run reached, by node. Each end is read once."""

    def __init__(self) -> None:
        #: Node -> the train step that the run reached on it.
        self._on_node: dict[str, float] = {}
        #: First attempt since the last `resume` or `release`, 0 if there was none -> the train step
        #: that the run reached.
        self._counted_from: dict[int, float] = {}

    def add(self, later: End) -> None:
        """Count an attempt. Call this for the newest attempt first."""
        if not later.nodes:
            return
        reached = math.inf if later.cause is Cause.COMPLETED else later.reached
        if reached is None:
            return
        for node in later.nodes:
            self._on_node[node] = max(reached, self._on_node.get(node, -math.inf))
        since = later.counted_from if later.counted_from <= later.attempt else 0
        self._counted_from[since] = max(reached, self._counted_from.get(since, -math.inf))

    def suspects(self, failed: End) -> set[str]:
        """Return the nodes of a failed attempt that may be the reason."""
        reached = -1 if failed.reached is None else failed.reached
        nodes = set(failed.nodes)
        left = {node for node in nodes if self._on_node.get(node, -math.inf) <= reached}
        if failed.cause is Cause.FAILED:
            by_itself = any(
                since <= failed.attempt and further > reached
                for since, further in self._counted_from.items()
            )
            return left if by_itself else set()
        return left or nodes


def _ran_well(ends: Sequence[End], nodes: set[str]) -> dict[str, list[datetime]]:
    """Return node -> end times of the attempts that ran well on it."""
    found: dict[str, list[datetime]] = {node: [] for node in nodes}
    for end in ends:
        if end.cause in WELL or (end.cause in WELL_IF_SAVED and end.has_saved):
            for node in nodes & set(end.nodes):
                found[node].append(end.ended_at)
    return found


def _standing(
    node: str,
    failures: Sequence[_Failure],
    well: Sequence[datetime],
    partitions: frozenset[str],
    now: datetime,
) -> Standing:
    weights_of: dict[str, list[float]] = defaultdict(list)
    well = sorted(well)
    for failure in failures:
        age = max(0.0, (now - failure.ended_at) / HALF_LIFE)
        since = len(well) - bisect_right(well, failure.ended_at)
        weights_of[failure.run_id].append(failure.weight * 0.5 ** (age + since))
    # fsum makes the result independent of the order of the ends.
    runs = {run_id: min(1.0, math.fsum(weights)) for run_id, weights in weights_of.items()}
    by_user: dict[str, dict[str, float]] = defaultdict(dict)
    for failure in failures:
        by_user[failure.user][failure.run_id] = runs[failure.run_id]
    first = min(failure.ended_at for failure in failures)
    causes = Counter(failure.cause for failure in failures)
    return Standing(
        node=node,
        score=math.fsum(min(1.0, math.fsum(of_user.values())) for of_user in by_user.values()),
        runs=tuple(sorted(weights_of)),
        heard=sum(weight >= SPEAKS_FROM for weight in runs.values()),
        failures=len(failures),
        causes=tuple(sorted(causes, key=lambda cause: (-causes[cause], cause.value))),
        last_failure=max(failure.ended_at for failure in failures),
        ran_well=len(well) - bisect_right(well, first),
        partitions=partitions - {""},
        total=math.fsum(runs.values()),
    )


def _own(ends: Iterable[End], forgiven: Mapping[str, datetime], now: datetime) -> dict[str, str]:
    """Return run -> the only node of its last attempt, if that failed within HALF_LIFE."""
    last: dict[str, End] = {}
    for end in ends:
        if end.run_id not in last or last[end.run_id].attempt < end.attempt:
            last[end.run_id] = end
    return {
        run_id: end.nodes[0]
        for run_id, end in last.items()
        if (end.cause in _HARD or (end.cause is Cause.FAILED and end.reached is None))
        and len(end.nodes) == 1
        and _NODE_NAME.fullmatch(end.nodes[0])
        and now - end.ended_at < HALF_LIFE
        and end.ended_at > forgiven.get(end.nodes[0], datetime.min.replace(tzinfo=timezone.utc))
    }
