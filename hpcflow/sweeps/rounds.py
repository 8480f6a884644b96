"""Run one round of every active sweep of this home."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from hpcflow.errors import HpcflowError, LedgerError, StorageError, in_one_line
from hpcflow.storage.files import last_line
from hpcflow.storage.layout import Home
from hpcflow.storage.sweeps import SweepDir, list_sweeps, require_private

if TYPE_CHECKING:
    from hpcflow.requeue.round_context import RoundContext
    from hpcflow.sweeps.round import TickReport

#: Set only in crontab and scrontab entries: tells a round which of them started it.
STARTED_BY: Final = "HPCFLOW_SWEEP_CRON"

_log = logging.getLogger(__name__)


def under_way(home: Home) -> list[SweepDir]:
    """Return the sweeps that may need a round: all whose last record is not ``over``."""
    return [each for each in list_sweeps(home) if not _is_over(each)]


def _is_over(sweep_dir: SweepDir) -> bool:
    """Return whether the last line of the journal says so; the rest is not read."""
    try:
        require_private(sweep_dir.path)
        return last_line(sweep_dir.journal).startswith(b'{"record": "over"')
    except StorageError:
        return False


def tick_all(around: RoundContext, *, only: SweepDir | None = None) -> list[TickReport]:
    """Run a round of each sweep; only a LedgerError in one stops the others.

    Args:
        around: its ledger must be up to date.
        only: this sweep alone.
    """
    # These imports take longer than to see that there is nothing to do.
    from hpcflow.sweeps.round import TickReport
    from hpcflow.sweeps.tick import catch_up_sent, tick

    reports = []
    for sweep_dir in [only] if only is not None else under_way(around.settings.home):
        try:
            report = tick(around, sweep_dir, is_asked_for=only is not None)
        except LedgerError:
            raise
        except HpcflowError as error:
            report = TickReport(sweep_dir.sweep_id, problems=[in_one_line(error)])
        except Exception as error:  # unexpected file content: the other sweeps go on
            _log.debug("round of %s", sweep_dir.sweep_id, exc_info=True)
            said = f"{type(error).__name__}: {error}"
            report = TickReport(sweep_dir.sweep_id, problems=[f"the round failed: {said}"])
        if report is not None:
            catch_up_sent(around, report)
            reports.append(report)
    return reports


def look_and_tick(
    around: RoundContext, *, only: SweepDir | None = None
) -> tuple[list[str], list[TickReport]]:
    """Bring all runs of this user up to date, as the daemon does; then run a round of the sweeps.

    Args:
        only: a round of this sweep alone.

    Returns:
        Warnings about the runs, and the reports of the rounds.
    """
    from hpcflow.requeue.daemon.loop import Daemon, ExitRequest

    warnings: list[str] = []
    told = ExitRequest(around.clock)
    daemon = Daemon(around, told, on_report=lambda _: None, on_text=warnings.append)
    report = daemon.once()
    if report is not None:
        warnings += report.warnings
        warnings += [f"{run_id}: {problem}" for run_id, problem in report.problems.items()]
    else:  # a daemon holds the lease; its last round may be a while ago
        from hpcflow.reconcile.refresh import refresh

        warnings += refresh(around)
    return warnings, tick_all(around, only=only)
