"""Ask the sampler for new trials, as many as the budget and ``parallel`` allow."""

from __future__ import annotations

from hpcflow.model.sweep_records import Asked, Late, Over
from hpcflow.sweeps.budget import LATE, room
from hpcflow.sweeps.population import explore, is_complete, source_for, to_replace
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.sending import send, send_all
from hpcflow.sweeps.state import SweepState


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
