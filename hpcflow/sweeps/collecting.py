"""Collect the reports of trials: read and journal them, and tell how trials ended.

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
from difflib import get_close_matches
from typing import Any, Final

from hpcflow.errors import StorageError
from hpcflow.model.bounds import MOST_COUNT
from hpcflow.model.events import finite, parse_event
from hpcflow.model.pruner import Per, Pruner
from hpcflow.model.state import RunState
from hpcflow.model.sweep import SweepSpec
from hpcflow.model.sweep_records import Read, Retried, SweepRecord
from hpcflow.resources import doc_page
from hpcflow.storage.files import read_from
from hpcflow.storage.layout import RunDir
from hpcflow.storage.lines import Position, split_lines
from hpcflow.storage.runs import linked
from hpcflow.sweeps.budget import no_room_for
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import RunReport, Trial
from hpcflow.sweeps.trials import is_over

#: After this many bytes the offset is journaled, even without news, so that they are read once.
_UNSAID_BYTES: Final = 1 << 20
_PORTION_BYTES: Final = 4 << 20
#: Names of other metrics to remember, for a misspelt objective.
_MOST_OTHERS: Final = 20
#: Most points that one report fills.
_MOST_FILLED: Final = 1000


def collect(this: Round) -> None:
    """Read new reports of running trials, and tell those whose runs are over."""
    for trial in this.progress.open:
        if trial.told is not None:
            continue
        for run_id in trial.current_runs:
            _read(this, trial, run_id)
        _tell_if_over(this, trial)


def _read(this: Round, trial: Trial, run_id: str) -> None:
    """Read the new events of a run, and journal them if they hold news."""
    known = this.known.get(run_id)
    if known is None:
        return
    over = is_over(known)
    unsaid: list[SweepRecord] = []
    begun_at = dict(trial.report(run_id).offsets)
    now = this.around.clock.now()
    try:
        for run_dir in linked(this.around.settings.home, [run_id]):
            for read in read_reports(
                this.progress.spec, trial.number, run_dir, trial.report(run_id), now
            ):
                unsaid.append(read)
                is_far = read.offset_bytes - begun_at.get(read.attempt, 0) > _UNSAID_BYTES
                if has_news(read) or (over and read.last) or is_far:
                    # With the records of earlier attempts, which must come first.
                    this.write(*unsaid)
                    unsaid = []
    except StorageError as error:
        this.report.problems.append(error.message)


def _tell_if_over(this: Round, trial: Trial) -> None:
    """Tell how a trial ended, once all its runs are over or one has failed."""
    states = [this.run_state(run_id) for run_id in trial.current_runs]
    if this.is_cancelled and any(state is not RunState.COMPLETED for state in states):
        this.tell(trial, "failed", why="the sweep was stopped", stopped=True)
        return
    for repeat, (run_id, state) in enumerate(zip(trial.current_runs, states, strict=True)):
        if state is not None and state is not RunState.COMPLETED:
            _failed(this, trial, repeat, run_id, state)
            return
    if any(state is None for state in states):
        return
    newest = trial.newest()
    goals = [goal.metric for goal in this.progress.spec.goals]
    if missing := [metric for metric in goals if metric not in newest]:
        _never_reported(this, trial, missing[0])
        return
    values = [newest[metric] for metric in goals]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        name = goals[values.index(None)]
        this.tell(trial, "failed", why=f"its last {name} was not finite")
        return
    this.tell(trial, "complete", values=numbers)


def _failed(this: Round, trial: Trial, repeat: int, run_id: str, state: RunState) -> None:
    """Retry a run that has failed for good, or tell its trial as failed."""
    tried = len(trial.runs[repeat]) - 1
    why_not = None
    if state is RunState.FAILED and tried < this.progress.spec.retries:
        if this.is_doubtful:
            return  # a later round decides
        why_not = this.why_no_submission() or no_room_for(
            this.progress, this.rate(), this.taken(retried=run_id)
        )
        if why_not is None:
            retry = this.new_run_id(trial.number, repeat)
            now = this.around.clock.now()
            this.write(Retried(at=now, trial=trial.number, failed=run_id, run=retry))
            return
    known = this.known.get(run_id)
    cause = known.run.cause if known is not None else None
    why = "its run was cancelled" if state is RunState.CANCELLED else f"its run failed: {cause}"
    suffix = f"; {why_not}" if why_not is not None else ""
    this.tell(trial, "failed", why=f"{why} ({run_id}){suffix}")


def _never_reported(this: Round, trial: Trial, metric: str) -> None:
    """Tell a trial without the objective as failed; halt the sweep if no trial has reported it."""
    this.tell(trial, "failed", why=f"it never reported {metric!r}")
    if any(metric in r.last for each in this.progress.trials for r in each.reports.values()):
        return
    names = sorted({name for r in trial.reports.values() for name in (*r.last, *r.others)})
    near = get_close_matches(metric, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    told = f"it reported {', '.join(names[:10])}" if names else "it reported no metric"
    why = f"trial {trial.number} completed but never reported {metric!r}: {told}{hint}"
    this.halt(
        why,
        f"correct `objective`, or let the program report it ({doc_page('sweeps')}), then start the "
        f"sweep again; to continue anyway: hpcflow sweep resume {this.sweep_dir.sweep_id}",
    )


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
