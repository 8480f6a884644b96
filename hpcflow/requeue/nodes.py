"""Which nodes fail runs: how attempts ended and the time go in, a score for every node comes out.

Slurm drains a node that it knows to be dead. This is about the others: those that come back after
each failure, or run everything but a training. Pure: what there is to weigh is read in
:mod:`.evidence`, and who keeps away from what is said in :mod:`.exclusion`.

- The end of an attempt speaks against its nodes as :data:`WEIGHTS` says, shared by all of them,
  for nobody knows which it was; but not those on which the same run later got further. A program
  that fails does so on any node: that counts only where the same run later got further without
  some of them, and without a person in between.
- It weighs half as much after every :data:`HALF_LIFE`, and half as much after every attempt that
  ran well on the node since.
- A run speaks against a node as loudly as one failure on that node alone, however often it failed:
  a program with a bug of its own excludes nothing for others. All runs of one user together speak
  no louder than that: the sixty trials of a sweep are sixty runs of one program.
- A node is *bad* when :data:`RUNS_AGAINST` runs speak against it, together with :data:`BAD_FROM`.
- A run itself keeps away from the node where its last attempt, alone there, failed so or before its
  first train step. The second crash of a program is then on another node, if there is one.
- What happened before a person said ``hpcflow nodes forgive NODE`` says nothing.
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

from hpcflow.ledger.ends import End
from hpcflow.model.state import Cause
from hpcflow.model.units import counted

#: A person who is told of a bad node sees to it within a working day or so.
HALF_LIFE: Final = timedelta(days=1)
#: What is older weighs an eighth of what it did, and is no longer heard: see SPEAKS_FROM.
LOOK_BACK: Final = 3 * HALF_LIFE
#: Clocks of login nodes and of the controller differ; what ended later than this is no time.
CLOCKS_DIFFER: Final = timedelta(hours=1)

#: How much an end says about the nodes. Of a job that vanished nobody knows where it went, and a
#: program that failed may have had its own reasons. Other causes say nothing: a preemption, a time
#: limit, a cancel are decided elsewhere, and memory is the run's to ask for.
WEIGHTS: Final[dict[Cause, float]] = {
    Cause.NODE_FAIL: 1.0,
    Cause.LAUNCH_FAILED: 1.0,
    Cause.STALLED: 1.0,
    Cause.VANISHED: 0.5,
    Cause.FAILED: 0.5,
}
#: The ends for which a node alone can be the reason: a run keeps away from where it last met one.
_HARD: Final = frozenset({Cause.NODE_FAIL, Cause.LAUNCH_FAILED, Cause.STALLED})
#: Ends of attempts that ran well: always, or if they made a checkpoint.
WELL: Final = frozenset({Cause.COMPLETED, Cause.CHECKPOINTED})
WELL_IF_SAVED: Final = frozenset({Cause.PREEMPTED, Cause.TIMEOUT})

RUNS_AGAINST: Final = 2
#: What a run says below this is not heard: one of eight nodes, or a failure of three days ago.
SPEAKS_FROM: Final = 0.125
#: Two runs that each failed on it and one other node (½ + ½), half a day later.
BAD_FROM: Final = 0.7

#: A share below a hundredth says nothing; jobs of so many nodes are not looked at.
_MOST_NODES: Final = 100
_ATTEMPT: Final = attrgetter("attempt")
#: What Slurm takes for a node's name. Event files are written by jobs, and a ledger may be common
#: to many: any other text in the place of a name is not one.
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)


@dataclass(frozen=True)
class Standing:
    """What is known of one node of a site.

    Attributes:
        score: all that speaks against it, by its weight now, each user with 1 at most.
        total: the same, however much one user says: for the order of those with the same score.
        runs: the runs that failed on it; ``heard``: how many still say enough to count.
        failures: how many attempts.
        causes: their causes, the most frequent first.
        ran_well: attempts that ran well on it after its first failure.
        partitions: in which all these attempts ran.
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
        """Whether new attempts had better keep away from it, if others are better."""
        return self.heard >= RUNS_AGAINST and self.score >= BAD_FROM

    @property
    def why(self) -> str:
        """The verdict and its reason, in words."""
        causes = ", ".join(cause.value for cause in self.causes)
        said = f"{counted(self.failures, 'failure')} of {counted(len(self.runs), 'run')} ({causes})"
        if self.ran_well:
            said += f", {counted(self.ran_well, 'attempt')} ran well since"
        if self.is_bad:
            return said
        if len(self.runs) < RUNS_AGAINST:
            return f"{said}; one run alone can be its own fault"
        return f"{said}; too little, or too long ago, to avoid it"


@dataclass(frozen=True)
class Evidence:
    """What past attempts say about nodes.

    Attributes:
        standings: site -> its nodes that have failed a run, the worst first.
        own: run -> the node that its next attempt keeps away from: the last one, alone there,
            failed for a reason that can be the node's.
        seen: site -> partition -> how many nodes these attempts had there.
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


def weigh(
    ends: Iterable[End],
    now: datetime,
    forgiven: Mapping[tuple[str, str], datetime] | None = None,
) -> Evidence:
    """What ``ends``, in any order, say about nodes.

    Args:
        forgiven: site and node -> what happened until then counts no more.
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
    """The nodes of one site that have failed a run, the worst first."""
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
        of_attempt = list(same)  # several runs, and no end is later than another
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
        """Return the nodes of a failed attempt that may have been the reason."""
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
    """Node -> when attempts ended that ran well on it."""
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
    said: dict[str, list[float]] = defaultdict(list)
    well = sorted(well)
    for failure in failures:
        age = max(0.0, (now - failure.ended_at) / HALF_LIFE)
        since = len(well) - bisect_right(well, failure.ended_at)
        said[failure.run_id].append(failure.weight * 0.5 ** (age + since))
    # fsum, so that the order in which the ends were read makes no difference.
    runs = {run_id: min(1.0, math.fsum(weights)) for run_id, weights in said.items()}
    by_user: dict[str, dict[str, float]] = defaultdict(dict)
    for failure in failures:
        by_user[failure.user][failure.run_id] = runs[failure.run_id]
    first = min(failure.ended_at for failure in failures)
    causes = Counter(failure.cause for failure in failures)
    return Standing(
        node=node,
        score=math.fsum(min(1.0, math.fsum(of_user.values())) for of_user in by_user.values()),
        runs=tuple(sorted(said)),
        heard=sum(weight >= SPEAKS_FROM for weight in runs.values()),
        failures=len(failures),
        causes=tuple(sorted(causes, key=lambda cause: (-causes[cause], cause.value))),
        last_failure=max(failure.ended_at for failure in failures),
        ran_well=len(well) - bisect_right(well, first),
        partitions=partitions - {""},
        total=math.fsum(runs.values()),
    )


def _own(ends: Iterable[End], forgiven: Mapping[str, datetime], now: datetime) -> dict[str, str]:
    """Run -> the one node on which its last attempt failed, not long ago."""
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
