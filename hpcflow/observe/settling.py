"""Bills, put in the place of what budgets had committed to their attempts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from hpcflow.budgets.amounts import billed
from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.budgets.scope import scopes_of
from hpcflow.budgets.settlements import Settlement, settle
from hpcflow.ledger.derive import BILL_TRIES
from hpcflow.model.journal import Accounted
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import read_run


class Settling:
    """Settles the bills of one look."""

    def __init__(self, find_site: Callable[[], Site], home: Home) -> None:
        self._find_site, self._home = find_site, home

    @cached_property
    def _folder(self) -> BudgetFolder:
        return budgets_of(self._find_site(), self._home)

    def settle(self, run_dir: RunDir, record: Accounted) -> None:
        """Settle one, in every budget that counts it.

        Raises:
            StorageError: a budget cannot be read or written.
        """
        if not self._folder.path.is_dir():
            return
        run = read_run(run_dir)
        settlement = Settlement(
            run.run_id,
            record.attempt,
            run.user,
            scopes_of(
                project=run.spec.project, user=run.user, sweep=run.parent_sweep, run_id=run.run_id
            ),
            billed(record.cost_usd, record.cost_su, record.gpu_hours, record.elapsed_s),
            record.ended_at or record.at,
            is_final=record.source == "accounting" or record.tries >= BILL_TRIES,
        )
        settle(self._folder, settlement, record.at)
