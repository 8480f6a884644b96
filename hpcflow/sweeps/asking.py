"""Ask the sampler for new trials, as many as the budget and ``parallel`` allow, and submit them."""

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
from hpcflow.model.sweep_records import Asked, Late, Over
from hpcflow.sweeps.budget import LATE, room
from hpcflow.sweeps.closing import request_end
from hpcflow.sweeps.population import explore, is_complete, source_for, to_replace
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import SweepState, Trial

if TYPE_CHECKING:
    from hpcflow.launch.plan import Plan


def ask(this: Round) -> None:
    """Submit waiting trials, ask for new ones, and submit these."""
    progress = this.progress
    if this.is_doubtful:
        _warn_late(this)
        return
    if this.is_cancelled or not send_all(this):
        return
    while progress.state is SweepState.RUNNING:
        now = this.around.clock.now()
        left = room(progress, this.rate(), now, this.taken())
        if left.why is not None:
            _end_if_empty(this, left.why)
            break
        if left.trials == 0 or not _ask_one(this):
            break
    if this.in_arrays:
        send_all(this)


def _ask_one(this: Round) -> bool:
    """Ask for one trial and submit it; False if none is left or Slurm accepts no more now."""
    asked = _ask_population(this) if this.is_population else _ask_study(this)
    if asked is None:
        population = "all trials of the population have ended"
        combinations = "every combination of the grid has its trial"
        _end_if_empty(this, population if this.is_population else combinations)
        return False
    this.write(asked)
    this.report.asked.append(asked.trial)
    return this.in_arrays or send(this, this.progress.trials[asked.trial])


def _ask_study(this: Round) -> Asked | None:
    """Return a trial from the sampler; None if none is left."""
    question = this.study_to_ask().ask()
    if question is None:
        return None
    number = len(this.progress.trials)
    repeats = range(this.progress.spec.repeats)
    return Asked(
        at=this.around.clock.now(),
        trial=number,
        params=question.params,
        runs=[this.new_run_id(number, repeat) for repeat in repeats],
        attrs=question.attrs,
        study_attrs=question.study_attrs,
        how=question.how,
        start=question.start,
    )


def _ask_population(this: Round) -> Asked | None:
    """Return a trial of the first population, or one that replaces a pruned trial; None if none."""
    progress, now = this.progress, this.around.clock.now()
    number = len(progress.trials)
    run = this.new_run_id(number, 0)
    if not is_complete(progress):
        question = this.study_to_ask().ask()
        assert question is not None
        params = question.params
        return Asked(at=now, trial=number, params=params, runs=[run], how="population")
    for loser in to_replace(progress):
        source = source_for(progress, loser, loser.judged_to)
        if source is None:
            continue
        source_run = source.current_runs[0]
        if this.runs.has_checkpoint(source_run):
            return Asked(
                at=now,
                trial=number,
                params=explore(progress, source, number),
                runs=[run],
                how="population",
                replaces=loser.number,
                source=source.number,
                source_run=source_run,
            )
    return None  # no running trial is better than the pruned ones


def _warn_late(this: Round) -> None:
    """Journal that the deadline has passed, unless a record says so; one in the future is void."""
    now, since = this.around.clock.now(), this.progress.late_at
    if since is None or since > now:
        this.write(Late(at=now))
        this.report.said.append(f"{LATE}; the sweep ends if a round confirms it in an hour")


def _end_if_empty(this: Round, why: str) -> None:
    if not this.progress.open:
        this.write(Over(at=this.around.clock.now(), why=why))
        this.report.said.append(f"over: {why}")


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
