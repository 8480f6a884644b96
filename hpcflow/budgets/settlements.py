"""Replace commitments by the bills of their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hpcflow.budgets.amounts import Amounts
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import entry_line
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Standing


@dataclass(frozen=True)
class Settlement:
    """The final or estimated cost of an attempt.

    Attributes:
        is_final: whether the bill will not change any more.
        billed_at: when it was journaled.
    """

    run_id: str
    attempt: int
    by: str
    scopes: tuple[Scope, ...]
    amounts: Amounts
    ended_at: datetime
    is_final: bool
    billed_at: datetime

    def to_line(self) -> str:
        return entry_line(
            "settled",
            self.billed_at,
            self.by,
            self.run_id,
            self.attempt,
            amounts=self.amounts,
            ended_at=self.ended_at,
            is_final=self.is_final,
        )


def settle(folder: BudgetFolder, settlement: Settlement) -> None:
    """Replace the commitment to an attempt by its bill, or correct an earlier bill.

    An attempt without a commitment is also settled: a job that Slurm has restarted, or that was
    submitted by hand.

    Raises:
        StorageError: it could not be written now: another process may hold the lock.
    """
    scopes = [scope for scope in settlement.scopes if folder.has(scope)]
    if not scopes:
        return
    with folder.lock(wait_s=0):
        for scope in scopes:
            _settle(folder, scope, settlement)


def _settle(folder: BudgetFolder, scope: Scope, settlement: Settlement) -> None:
    key = (settlement.run_id, settlement.attempt)
    budget = folder.look(scope)
    if budget.terms is None:
        return
    before = budget.entries.get(key)
    if before is None and not budget.is_whole:  # it may have been settled long ago
        before = folder.read(scope, whole=True).entries.get(key)
    if before is None and budget.opened_at is not None and settlement.billed_at <= budget.opened_at:
        return  # it is part of the opening
    if before is not None and before.standing is Standing.SETTLED:
        same = before.amounts == settlement.amounts and before.at == settlement.ended_at
        if before.is_final or (same and not settlement.is_final):
            return
    folder.append(scope, [settlement.to_line()])
