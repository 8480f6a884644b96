"""Submit new trials: one by one, or as arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcflow.errors import (
    HpcflowError,
    InputError,
    ScratchError,
    StorageError,
    SubmissionRefused,
    in_one_line,
    next_step,
)
from hpcflow.sweeps.closing import request_end
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import Trial

if TYPE_CHECKING:
    from hpcflow.launch.plan import Plan


def send_all(this: Round) -> bool:
    """Submit trials that were asked for before; return whether Slurm accepted all of them."""
    waiting = [trial for trial in this.progress.open if trial.told is None]
    why = this.why_no_submission()
    if why is not None:
        waiting = _drop_unsent(this, waiting, why)
    if this.in_arrays and not _send_arrays(this, waiting):
        return False
    return all(send(this, trial) for trial in waiting)


def _drop_unsent(this: Round, waiting: list[Trial], why: str) -> list[Trial]:
    """Tell trials without a job as failed, because of ``why``; return the others."""
    begun = [trial for trial in waiting if _has_begun(this, trial)]
    for trial in waiting:
        if trial not in begun:
            this.tell(trial, "failed", why=why, stopped=True)
            request_end(this, trial)
    return begun


def _has_begun(this: Round, trial: Trial) -> bool:
    """Return whether a trial has a job, had one, or may have one."""
    return any(
        this.was_sent(run_id) or not this.runs.is_never_sent(run_id) for run_id in trial.all_runs
    )


def _send_arrays(this: Round, waiting: list[Trial]) -> bool:
    """Submit runs that can form arrays; the caller submits the rest one by one."""
    wanted = [
        (trial, repeat, run_id)
        for trial in waiting
        for repeat, run_id in enumerate(trial.current_runs)
        if not this.was_sent(run_id)
    ]
    if any(this.runs.was_refused(run_id) for _, _, run_id in wanted):
        trial, _, _ = wanted[0]
        if not send(this, trial):  # Slurm still accepts no more
            return False
        wanted = [each for each in wanted if each[0] is not trial]
    plans = _plans(this, wanted)
    if plans is None:
        return False

    def in_arrays() -> None:
        try:
            for sent in this.runs.send_arrays(plans, this.sweep_dir):
                this.report.sent.update(sent)
        except StorageError as error:  # an error in one run must not stop the others
            this.report.problems.append(in_one_line(error))

    return _submitted(this, waiting, in_arrays)


def _plans(this: Round, wanted: list[tuple[Trial, int, str]]) -> list[Plan] | None:
    """Return the plans of runs without a job; None if one cannot be planned."""
    plans: list[Plan] = []
    for trial, repeat, run_id in wanted:

        def plan(trial: Trial = trial, repeat: int = repeat, run_id: str = run_id) -> None:
            if this.runs.is_unsent(run_id):
                plans.append(this.runs.plan(trial.number, trial.params, repeat, run_id))

        if not _submitted(this, [trial], plan):
            return None
    return plans


def send(this: Round, trial: Trial) -> bool:
    """Submit the runs of one trial that have no job; return whether Slurm accepted them."""
    source = None
    if trial.source is not None and not all(map(this.was_made, trial.current_runs)):
        source = trial.source_run or this.progress.trials[trial.source].current_runs[0]
        if not this.runs.has_checkpoint(source):
            # It does not count: a new trial continues from the best one at that time.
            why = f"run {source} has no checkpoint any more to continue from"
            this.tell(trial, "failed", why=why, stopped=True)
            return True

    def one_by_one() -> None:
        for repeat, run_id in enumerate(trial.current_runs):
            if this.was_sent(run_id):
                continue
            launched = this.runs.send(trial, repeat, run_id, source=source)
            if launched is not None:
                this.report.sent[run_id] = launched.job_id

    return _submitted(this, [trial], one_by_one)


def _submitted(this: Round, trials: list[Trial], send_them: Callable[[], None]) -> bool:
    """Call ``send_them``; return False if it failed. A permanent error halts the sweep."""
    try:
        send_them()
    except ScratchError as error:  # scratch is full, or a file was replaced while it was copied
        this.report.problems.append(in_one_line(error))
    except (InputError, SubmissionRefused) as error:
        for trial in trials:
            if not all(map(this.was_sent, trial.current_runs)):
                this.tell(trial, "failed", why=error.message)
        again = f"then: hpcflow sweep resume {this.sweep_dir.sweep_id}"
        first = error.next_action or "correct it"
        this.halt(f"no trial can be submitted: {error.message}", f"{first}; {again}")
    except HpcflowError as error:
        this.report.problems.append(f"{error.message}{next_step(error)}")
    else:
        return True
    return False
