"""Collect the results of trials: read them, journal them, tell the study."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from hpcflow.errors import StorageError
from hpcflow.model.state import RunState
from hpcflow.model.sweep_records import Retried, SweepRecord
from hpcflow.resources import doc_page
from hpcflow.storage.runs import linked
from hpcflow.sweeps.budget import no_room_for
from hpcflow.sweeps.reports import read_reports, says_something
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import Trial
from hpcflow.sweeps.trials import is_over

#: So much of a file is not read over and over, even where it says nothing.
_UNSAID_BYTES: Final = 1 << 20


def collect(this: Round) -> None:
    """Read what is new of the trials that run, and tell of those that are over."""
    for trial in this.progress.open:
        if trial.told is not None:
            continue
        for run_id in trial.current_runs:
            _read(this, trial, run_id)
        _tell_if_over(this, trial)


def _read(this: Round, trial: Trial, run_id: str) -> None:
    """Put down what a run has reported, if it is worth a line."""
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
                if says_something(read) or (over and read.last) or is_far:
                    # With what earlier attempts have said, which would be read later otherwise.
                    this.write(*unsaid)
                    unsaid = []
    except StorageError as error:
        this.report.problems.append(error.message)


def _tell_if_over(this: Round, trial: Trial) -> None:
    """How a trial counts, once all its runs are over."""
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
        this.tell(trial, "failed", why=f"its last {name} was no number")
        return
    this.tell(trial, "complete", values=numbers)


def _failed(this: Round, trial: Trial, repeat: int, run_id: str, state: RunState) -> None:
    """A run has failed for good: train it again, or let the trial count as failed."""
    tried = len(trial.runs[repeat]) - 1
    why_not = None
    if state is RunState.FAILED and tried < this.progress.spec.retries:
        if this.is_doubtful:
            return  # a later round knows whether it is trained again
        why_not = this.why_nothing_begins() or no_room_for(
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
    behind = f"; {why_not}" if why_not is not None else ""
    this.tell(trial, "failed", why=f"{why} ({run_id}){behind}")


def _never_reported(this: Round, trial: Trial, metric: str) -> None:
    """The first trial that came to its end without the objective is the last one; unless others
    have reported it: then something is wrong with this one alone."""
    this.tell(trial, "failed", why=f"it never reported {metric!r}")
    if any(metric in r.last for each in this.progress.trials for r in each.reports.values()):
        return
    names = sorted({name for r in trial.reports.values() for name in (*r.last, *r.others)})
    near = get_close_matches(metric, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    told = f"it reported {', '.join(names[:10])}" if names else "it reported no metric at all"
    why = f"trial {trial.number} came to its end and never reported {metric!r}: {told}{hint}"
    this.halt(
        why,
        f"correct `objective`, or let the program report it ({doc_page('sweeps')}), then start the "
        f"sweep again; to continue anyway: hpcflow sweep resume {this.sweep_dir.sweep_id}",
    )
