"""Sending what was asked for: one by one, or as arrays."""

from __future__ import annotations

from collections.abc import Callable

from hpcflow.errors import HpcflowError, InputError, SubmissionRefused
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import Trial


def send_all(this: Round) -> bool:
    """Send what was asked for before and is not sent; whether Slurm took all of it."""
    waiting = [trial for trial in this.progress.open if trial.told is None]
    if this.progress.stop is not None:
        waiting = _without_unmade(this, waiting)
    if this.in_arrays and not _send_arrays(this, waiting):
        return False
    return all(send(this, trial) for trial in waiting)


def _without_unmade(this: Round, waiting: list[Trial]) -> list[Trial]:
    """Once no more are wanted, those of which nothing was made are not begun."""
    made = [trial for trial in waiting if any(map(this.was_made, trial.all_runs))]
    for trial in waiting:
        if trial not in made:
            this.tell(trial, "failed", why="the sweep was stopped", stopped=True)
    return made


def _send_arrays(this: Round, waiting: list[Trial]) -> bool:
    """The same for those that make an array; what makes none is sent one by one."""
    wanted = [
        (trial, repeat, run_id)
        for trial in waiting
        for repeat, run_id in enumerate(trial.current_runs)
        if not this.was_sent(run_id)
    ]

    def in_arrays() -> None:
        if any(this.runs.was_put_off(run_id) for _, _, run_id in wanted):
            trial, repeat, run_id = wanted.pop(0)
            launched = this.runs.send(trial, repeat, run_id)  # is there room by now?
            this.report.sent.update({run_id: launched.job_id} if launched else {})
        for sent in this.runs.send_arrays(wanted, this.sweep_dir):
            this.report.sent.update(sent)

    return _is_taken(this, waiting, in_arrays)


def send(this: Round, trial: Trial) -> bool:
    """Send the runs of one trial that are not sent; whether Slurm took them."""

    def one_by_one() -> None:
        for repeat, run_id in enumerate(trial.current_runs):
            if this.was_sent(run_id):
                continue
            launched = this.runs.send(trial, repeat, run_id, source=_source(this, trial))
            if launched is not None:
                this.report.sent[run_id] = launched.job_id

    return _is_taken(this, [trial], one_by_one)


def _is_taken(this: Round, trials: list[Trial], send_them: Callable[[], None]) -> bool:
    """Send them; False where Slurm takes no more now, or never will: then the sweep halts."""
    try:
        send_them()
    except (InputError, SubmissionRefused) as error:
        for trial in trials:
            if not all(map(this.was_sent, trial.current_runs)):
                this.tell(trial, "failed", why=error.message)
        again = f"then: hpcflow sweep resume {this.sweep_dir.sweep_id}"
        first = error.next_action or "correct it"
        this.halt(f"no trial can be sent: {error.message}", f"{first}; {again}")
    except HpcflowError as error:
        this.report.problems.append(error.message)
    else:
        return True
    return False


def _source(this: Round, trial: Trial) -> str | None:
    """The run whose checkpoint a trial goes on from."""
    if trial.source is None:
        return None
    return this.progress.trials[trial.source].current_runs[0]
