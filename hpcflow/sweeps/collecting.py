"""Collect the reports of trials: read and journal them, and tell how trials ended."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from hpcflow.errors import StorageError
from hpcflow.model.state import RunState
from hpcflow.model.sweep_records import Retried, SweepRecord
from hpcflow.resources import doc_page
from hpcflow.storage.runs import linked
from hpcflow.sweeps.budget import no_room_for
from hpcflow.sweeps.reports import has_news, read_reports
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import Trial
from hpcflow.sweeps.trials import is_over

#: After this many bytes the offset is journaled, even without news, so that they are read once.
_UNSAID_BYTES: Final = 1 << 20


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
