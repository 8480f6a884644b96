"""Read the objective of a trial from the events of its runs.

Trials are compared at points: percents, epochs or train steps of their training. The value at a
point is the newest one when the training reached it. A program that reports once a minute skips
points; all skipped points get the same value. A resumed program passes some points again; their
first value stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from hpcflow.model.bounds import MOST_COUNT
from hpcflow.model.events import finite, parse_event
from hpcflow.model.pruner import Per, Pruner
from hpcflow.model.sweep import SweepSpec
from hpcflow.model.sweep_records import Read
from hpcflow.storage.files import read_from
from hpcflow.storage.layout import RunDir
from hpcflow.storage.lines import Position, split_lines
from hpcflow.sweeps.state import RunReport

_PORTION_BYTES: Final = 4 << 20
#: Names of other metrics to remember, for a misspelt objective.
_MOST_OTHERS: Final = 20
#: Most points that one report fills.
_MOST_FILLED: Final = 1000


@dataclass
class _Reader:
    """Reads the events of one run, in the order in which they were written."""

    spec: SweepSpec
    report: RunReport
    total: int | None
    reached: int
    last: dict[str, float | None]
    points: list[tuple[int, float | None]] = field(default_factory=list)
    others: set[str] = field(default_factory=set)
    is_finished: bool = False

    def take(self, event: dict[str, Any]) -> None:
        total = event.get("total_train_steps")
        if type(total) is int and 0 < total <= MOST_COUNT:
            self.total = total
        metrics = event.get("metrics")
        kind = event["event"]
        if kind == "train_started" and not self.last:
            # A run that starts from a checkpoint of another run skips the points before it.
            self.reached = max(self.reached, point_of(self.spec.pruner, event, self.total) or 0)
        self.is_finished = self.is_finished or kind == "finished"
        if kind not in ("progress", "finished") or not isinstance(metrics, dict):
            return
        for goal in self.spec.goals:
            if goal.metric in metrics:
                self.last[goal.metric] = finite(metrics[goal.metric])
        if not self.last:
            self.others.update(str(name)[:200] for name in list(metrics)[:_MOST_OTHERS])
        metric = self.spec.goals[0].metric
        if metric in self.last:
            self._reach(event, self.last[metric])

    def _reach(self, event: dict[str, Any], value: float | None) -> None:
        point = point_of(self.spec.pruner, event, self.total)
        if point is None or point <= self.reached:
            return
        every = self.spec.pruner.every
        first = max(self.reached + every, point - (_MOST_FILLED - 1) * every)
        self.points += [(each, value) for each in range(first, point + 1, every)]
        self.reached = point


def point_of(pruner: Pruner, event: dict[str, Any], total: int | None) -> int | None:
    """Return the point that an event reached; None if the event does not say."""
    if pruner.per is Per.EPOCH:
        epoch = finite(event.get("epoch"))
        far = None if epoch is None or epoch > MOST_COUNT else math.floor(epoch + 1e-9)
    else:
        train_step = event.get("train_step")
        if type(train_step) is not int or not 0 <= train_step <= MOST_COUNT:
            return None
        far = train_step
        if pruner.per is Per.PERCENT:
            far = min(100, 100 * train_step // total) if total else None
    return None if far is None else far // pruner.every * pruner.every


def read_reports(
    spec: SweepSpec, trial: int, run_dir: RunDir, report: RunReport, now: datetime
) -> Iterator[Read]:
    """Yield a record of the new events of each attempt of one run.

    Args:
        report: the events read before.

    Raises:
        StorageError: a file cannot be read. Records yielded before are valid.
    """
    total = report.total
    reached = max(report.points, default=0)
    last = dict(report.last)
    for number in run_dir.attempt_numbers():
        offset = report.offsets.get(number, 0)
        lines, end = _new_lines(run_dir, number, offset)
        reader = _Reader(spec, report, total, reached, dict(last))
        for line in lines:
            if (event := parse_event(line)) is not None:
                reader.take(event)
        if end == offset:
            continue
        total, reached = reader.total, reader.reached
        changed = {name: v for name, v in reader.last.items() if last.get(name, "") != v}
        last = reader.last
        yield Read(
            at=now,
            trial=trial,
            run=run_dir.path.name,
            attempt=number,
            offset_bytes=end,
            total=reader.total if reader.total != report.total else None,
            points=reader.points,
            last=changed,
            others=sorted(reader.others - report.others),
            finished=reader.is_finished,
        )


def has_news(read: Read) -> bool:
    """Return whether a record has more than a new offset and last values."""
    return bool(read.points or read.total or read.others or read.finished)


def _new_lines(run_dir: RunDir, number: int, offset: int) -> tuple[Iterable[bytes], int]:
    path = run_dir.attempt(number).events
    at = Position(offset)
    found: list[bytes] = []
    while True:
        data = read_from(path, at.offset_bytes, _PORTION_BYTES)
        lines, after = split_lines(data, at)
        if after == at:
            return found, at.offset_bytes
        found += lines
        at = after
