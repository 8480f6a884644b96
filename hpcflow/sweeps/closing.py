"""Close trials whose jobs have ended, with their cost; halt a sweep whose trials all fail."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final, TypeVar

from hpcflow.errors import SchedulerError, StorageError
from hpcflow.model.sweep_records import MOST_TAKEN, Closed
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import SweepState, Trial, TrialState, failures_in_a_row

#: Failures in a row that halt a sweep: if no trial has succeeded yet, and later.
_FAIL_AT_FIRST: Final = 3
_FAIL_LATER: Final = 5

_Number = TypeVar("_Number", float, Decimal)


def close(this: Round) -> None:
    """End the active runs of told trials; journal the cost of those that have ended."""
    to_end: list[str] = []
    for trial in this.progress.open:
        if trial.told is None:
            continue
        alive = [run_id for run_id in trial.all_runs if not this.is_at_rest(run_id)]
        if not alive:
            this.write(_closed(this, trial))
        request_end(this, trial, alive)
        to_end += alive
    if to_end:
        _cancel(this, to_end)


def request_end(this: Round, trial: Trial, run_ids: Iterable[str] | None = None) -> None:
    """Request the end of the runs of a told trial.

    Args:
        run_ids: runs that are not over; None for all.
    """
    for run_id in trial.all_runs if run_ids is None else run_ids:
        _request_end(this, trial, run_id)


def _request_end(this: Round, trial: Trial, run_id: str) -> None:
    assert trial.told is not None
    why = f"trial {trial.number} of its sweep: {trial.told.outcome}, {trial.told.why}"
    try:
        this.runs.request_end(run_id, why=why, prune=trial.state is TrialState.PRUNED)
    except StorageError as error:
        this.report.problems.append(f"{run_id}: {error.message}")


def _cancel(this: Round, run_ids: list[str]) -> None:
    try:
        this.runs.cancel_jobs(run_ids, this.around.queues.ask(this.sweep.site))
    except SchedulerError as error:
        this.report.problems.append(error.message)


def _closed(this: Round, trial: Trial) -> Closed:
    costs = [this.runs.cost(this.known.get(run_id)) for run_id in trial.all_runs]
    money = [each.cost_usd for each in costs if each.cost_usd is not None]
    total = sum(money, Decimal(0)) if money else None
    return Closed(
        at=this.around.clock.now(),
        trial=trial.number,
        seconds=round(_within(sum(each.seconds for each in costs)), 3),
        gpu_hours=round(_within(sum(each.gpu_hours for each in costs)), 6),
        cost_usd=None if total is None else str(_within(total).quantize(Decimal("0.000001"))),
    )


def _within(taken: _Number) -> _Number:
    """Clip ``taken``: a bill may hold any number, and an invalid record breaks the journal."""
    kind = type(taken)
    return min(max(kind(0), taken), kind(MOST_TAKEN))


def halt_if_all_fail(this: Round) -> None:
    """Halt the sweep if too many trials in a row have failed."""
    progress = this.progress
    if progress.state is not SweepState.RUNNING:
        return
    failed = failures_in_a_row(progress)
    has_succeeded = any(
        trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in progress.trials
    )
    enough = max(_FAIL_LATER, progress.parallel) if has_succeeded else _FAIL_AT_FIRST
    if len(failed) < enough:
        return
    last = failed[0]
    assert last.told is not None
    run_id = last.current_runs[0]
    this.halt(
        f"{len(failed)} trials in a row have failed; the last one: {last.told.why}",
        f"see why: hpcflow logs {run_id}; then continue: hpcflow sweep resume "
        f"{this.sweep_dir.sweep_id}",
    )
