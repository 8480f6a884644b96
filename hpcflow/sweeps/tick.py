"""One round of a sweep: collect, tell, prune, ask, submit.

It may be killed at any moment and made again at once. What is decided stands in the sweep's journal
before anything is done about it, and doing it is exactly once by itself: a trial's run ids are
chosen with the trial, so its runs are made and sent once, even if a round is killed.
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
    """One round of one sweep; None where somebody else is at it.

    Args:
        around: its ledger has been brought up to date a moment ago.
        is_asked_for: somebody has named it; else one of another cluster, which has the same home,
            is left to that.

    Raises:
        LedgerError: the database does not answer; nothing is lost.
        StorageError: the sweep's files cannot be read or written.
        InputError: its site is not there any more, or this is another cluster.
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
        this.require_complete_journal()  # it was stopped, and its trials may run
    if not this.progress.is_at_rest:
        with suppress(OvertakenError):  # the next round goes on from what they have written
            # First of all: what is wrong with the site is wrong with no trial, and on another
            # cluster directories are missing that are there where it runs.
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
    """Let the ledger know of the runs that were made in a round, where others look at it, too.

    One's own catches up with the next look.
    """
    if around.ledger.url.is_own:
        return
    made = linked(around.settings.home, report.sent)
    if made:
        catch_up(around.ledger, made)
