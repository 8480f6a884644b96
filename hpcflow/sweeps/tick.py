"""One round of a sweep: collect, tell, prune, ask, submit.

It may be killed at any moment and run again at once. Each decision is journaled before it is
carried out. A trial's run ids are journaled with the trial, so its runs are made and submitted
exactly once, even if a round is killed.
"""

from __future__ import annotations

from contextlib import suppress

from hpcflow.model.pruner import PrunerKind
from hpcflow.model.sweep_records import Judged
from hpcflow.projection import catch_up
from hpcflow.requeue.round_context import RoundContext
from hpcflow.storage.locks import try_lock
from hpcflow.storage.runs import linked
from hpcflow.storage.sweeps import SweepDir, require_private
from hpcflow.sweeps.asking import ask
from hpcflow.sweeps.closing import close, halt_if_all_fail
from hpcflow.sweeps.collecting import collect
from hpcflow.sweeps.population import is_among_worst, next_point, source_for
from hpcflow.sweeps.round import OvertakenError, Round, TickReport
from hpcflow.sweeps.state import Trial


def tick(
    around: RoundContext, sweep_dir: SweepDir, *, is_asked_for: bool = True
) -> TickReport | None:
    """Run one round of one sweep; None if another process runs one.

    Args:
        around: its ledger must be up to date.
        is_asked_for: the user named the sweep. Else a sweep of another cluster that shares this
            home is skipped.

    Raises:
        InputError: its site is not defined any more, or this is another cluster.
    """
    require_private(sweep_dir.path)
    with try_lock(sweep_dir.lock) as lock:
        if lock is None:
            return None
        this = Round(around, sweep_dir, lock)
        is_left = not is_asked_for and not this.progress.is_at_rest and this.is_elsewhere()
        return None if is_left else _go(this)


def _go(this: Round) -> TickReport:
    if this.progress.is_at_rest and not this.progress.trials:
        this.require_complete_journal()  # a stopped sweep without trials: the journal may be lost
    if not this.progress.is_at_rest:
        with suppress(OvertakenError):  # the next round reads what the other process wrote
            # First: a wrong site must not fail trials, and on another cluster their directories
            # may be missing.
            this.require_site()
            this.require_complete_journal()
            this.look()
            collect(this)
            _judge(this)
            close(this)
            halt_if_all_fail(this)
            ask(this)
    this.report.state = this.progress.state
    return this.report


def catch_up_sent(around: RoundContext, report: TickReport) -> None:
    """Add the runs made in a round to a shared ledger, for other users.

    The user's own ledger catches up when it is next read.
    """
    if around.ledger.url.is_own:
        return
    made = linked(around.settings.home, report.sent)
    if made:
        catch_up(around.ledger, made)


def _judge(this: Round) -> None:
    """Judge running trials by the pruner, or by their population."""
    for trial in this.progress.open:
        if trial.is_doomed and trial.told is None:  # a round was killed between the two records
            _prune(this, trial)
    if this.is_population:
        _judge_population(this)
    if this.progress.spec.pruner.kind is PrunerKind.NONE:
        return
    for trial in this.progress.open:
        if trial.told is not None or trial.is_finished:
            continue
        if not any(point > trial.judged_to for point in trial.points()):
            continue
        verdict = this.study_to_judge().judge(trial)
        if verdict is None:
            continue
        this.write(
            Judged(
                at=this.around.clock.now(),
                trial=trial.number,
                to=verdict.to,
                attrs=verdict.attrs,
                prune=verdict.prune,
            )
        )
        if verdict.prune:
            _prune(this, trial)


def _judge_population(this: Round) -> None:
    """Prune the worst trials of a population, if a better one has a checkpoint to continue from."""
    progress = this.progress
    for trial in progress.open:
        if trial.told is not None or trial.is_finished:
            continue
        point = next_point(progress, trial)
        is_worst = None if point is None else is_among_worst(progress, trial, point)
        if point is None or is_worst is None:
            continue
        if is_worst:
            source = source_for(progress, trial, point)
            if source is None or not this.runs.has_checkpoint(source.current_runs[0]):
                continue  # a better trial may reach the point or save a checkpoint later
        now = this.around.clock.now()
        this.write(Judged(at=now, trial=trial.number, to=point, prune=is_worst))
        if is_worst:
            _prune(this, trial)


def _prune(this: Round, trial: Trial) -> None:
    """Tell that a trial is pruned at the last point that was judged."""
    point = trial.judged_to
    value = trial.points().get(point)
    this.tell(
        trial,
        "pruned",
        values=[] if value is None else [value],
        why=f"at {this.progress.spec.pruner.per.value} {point}",
    )
