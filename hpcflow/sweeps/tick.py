"""One round of a sweep: collect, tell, prune, ask, submit.

It may be killed at any moment and run again at once. Each decision is journaled before it is
carried out. A trial's run ids are journaled with the trial, so its runs are made and submitted
exactly once, even if a round is killed.
"""

from __future__ import annotations

from contextlib import suppress

from hpcflow.projection import catch_up
from hpcflow.requeue.round_context import RoundContext
from hpcflow.storage.locks import try_lock
from hpcflow.storage.runs import linked
from hpcflow.storage.sweeps import SweepDir, require_private
from hpcflow.sweeps.asking import ask
from hpcflow.sweeps.closing import close, halt_if_all_fail
from hpcflow.sweeps.collecting import collect
from hpcflow.sweeps.judging import judge
from hpcflow.sweeps.round import OvertakenError, Round, TickReport


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
            judge(this)
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
