"""Commit to attempts before they are submitted; release what no job uses; settle by bills.

Each line is keyed by run and attempt, and can be written twice. Under the lock of the folder, all
budgets of an attempt are checked before a line is written. A process that is killed afterwards
leaves too much committed, never too little; :mod:`hpcflow.reconcile.budgets` corrects it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hpcflow.budgets.amounts import NOTHING, Amounts
from hpcflow.budgets.budget_check import Pledge, Refusal, refusal
from hpcflow.budgets.compaction import carried_line, is_worth_it
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Opening, entry_line
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget, Entry, Standing, fold
from hpcflow.clock import Clock
from hpcflow.errors import StorageError

#: Returns the lines of the run's earlier attempts, for a budget that its config sets.
Earlier = Callable[[], Iterable[str]]

#: A later pass releases what is not released now.
_RELEASE_LOCK_WAIT_S: Final = 10.0


def commit(
    folder: BudgetFolder,
    pledges: Sequence[Pledge],
    clock: Clock,
    *,
    earlier: Earlier = tuple,
) -> None:
    """Commit amounts to each budget that the attempts count against: all, or none.

    Args:
        earlier: called only for a budget that the config of a run sets now.

    Raises:
        BudgetError: a hard budget has no room; nothing is committed.
        StorageError: a budget cannot be read or written; nothing may be submitted.
    """
    scopes = {scope for pledge in pledges for scope in pledge.scopes}
    has_own = any(pledge.own is not None for pledge in pledges)
    if not has_own and not any(folder.has(scope) for scope in sorted(scopes)):
        return
    with folder.lock(clock):
        now = clock.now()
        sizes = {scope: folder.size(scope) for scope in scopes}
        there = [scope for scope in sorted(scopes) if folder.has(scope)]
        budgets = {scope: folder.look(scope).copy() for scope in there}
        lines: dict[Scope, list[str]] = defaultdict(list)
        for pledge in pledges:
            scope = Scope("run", pledge.run_id)
            of_run = budgets.get(scope, Budget(scope))
            if (change := _own_change(of_run, pledge, now)) is not None:
                lines[scope] += (some := _own_lines(change, earlier))
                budgets[scope] = fold(of_run, some)
        for number, pledge in enumerate(pledges):
            concerned = [
                budget
                for scope in pledge.scopes
                if (budget := budgets.get(scope)) is not None and budget.terms is not None
            ]
            for budget in concerned:
                if (no_room := refusal(budget, pledge, now)) is not None:
                    raise no_room.as_error(fits=number)
            for budget in concerned:
                lines[budget.scope].append(_committed(budget, pledge, now))
        for scope, said in lines.items():
            size = sizes[scope] + len("".join(said).encode())
            if is_worth_it(budgets[scope]):
                line = carried_line(budgets[scope], now, pledges[0].by, at_byte=size)
                size += len(line.encode())
                said.append(line)
            folder.append(scope, said)
            sizes[scope] = size
        # Another process may have written at the same moment if the file system has no locks, or
        # only locks within a node.
        _require_written(folder, pledges, list(lines))
        if any(folder.size(scope) != sizes[scope] for scope in lines):
            _require_first(folder, pledges, list(lines), now)


def _committed(budget: Budget, pledge: Pledge, now: datetime) -> str:
    """Return the line of the commitment, and count it in ``budget``."""
    budget.commit(
        Entry(
            *pledge.key,
            by=pledge.by,
            standing=Standing.COMMITTED,
            amounts=pledge.amounts,
            at=now,
            limit_s=pledge.limit_s,
            home=pledge.home,
        )
    )
    return pledge.to_line(now)


def _own_change(budget: Budget, pledge: Pledge, now: datetime) -> Change | None:
    """Return the change that sets the budget of the run's config; None if it was set before.

    A later change by a person stays.
    """
    said = [change.terms for change in budget.changes if change.how == "config"]
    if (said[-1] if said else None) == pledge.own:
        return None
    is_new = budget.terms is None and pledge.own is not None
    opening = Opening(NOTHING) if is_new else None
    return Change(now, pledge.by, pledge.own, how="config", opening=opening)


def _own_lines(change: Change, earlier: Earlier) -> list[str]:
    return [change.to_line(), *(earlier() if change.opening is not None else ())]


def _require_written(
    folder: BudgetFolder, pledges: Sequence[Pledge], scopes: Sequence[Scope]
) -> None:
    """Raise StorageError if the lines were overwritten: simultaneous appends collide on NFS."""
    for scope in scopes:
        budget = folder.look(scope)
        if budget.terms is None:
            continue
        for pledge in pledges:
            entry = budget.entries.get(pledge.key)
            if scope in pledge.scopes and (
                entry is None or entry.standing is not Standing.COMMITTED
            ):
                raise StorageError(
                    f"another process wrote to {folder.file(scope)} at the same time",
                    next_action="try again",
                )


def _require_first(
    folder: BudgetFolder, pledges: Sequence[Pledge], scopes: Sequence[Scope], now: datetime
) -> None:
    """Resolve simultaneous commitments by the order of their lines.

    A process whose lines come after those that fit releases its own.
    """
    keys = {pledge.key for pledge in pledges}
    for scope in scopes:
        budget = folder.read(scope, whole=True)
        before: dict[tuple[str, int], Entry] = {}
        for key, entry in budget.entries.items():
            before[key] = entry
            if key not in keys:
                continue
            pledge = next(each for each in pledges if each.key == key)
            up_to = Budget(
                scope, budget.terms, budget.opening, budget.opened_at, entries=dict(before)
            )
            no_room = refusal(up_to, pledge, now)
            if no_room is not None:
                _release(folder, pledges, now, why="another submission came first")
                raise no_room.as_error()


def no_room_for(
    folder: BudgetFolder,
    pledge: Pledge,
    now: datetime,
    read: dict[Scope, Budget] | None = None,
    *,
    earlier: Earlier = tuple,
) -> Refusal | None:
    """Return why a budget has no room for an attempt; None if all have. Nothing is written.

    Args:
        read: budgets that were just read; those read now are added.
        earlier: as for :func:`commit`.
    """
    known = {} if read is None else read
    for scope in pledge.scopes:
        if scope not in known and folder.has(scope):
            known[scope] = folder.look(scope)
        budget = known.get(scope)
        if scope.kind == "run":
            budget = _with_own(budget or Budget(scope), pledge, now, earlier)
        if budget is not None and (found := refusal(budget, pledge, now)) is not None:
            return found
    return None


def _with_own(budget: Budget, pledge: Pledge, now: datetime, earlier: Earlier) -> Budget:
    """Return the budget of a run with the change from its config."""
    change = _own_change(budget, pledge, now)
    return budget if change is None else fold(budget.copy(), _own_lines(change, earlier))


def release(folder: BudgetFolder, pledges: Sequence[Pledge], now: datetime, *, why: str) -> None:
    """Release the commitments to attempts that are certainly not jobs.

    Raises:
        StorageError: it could not be written; a later pass releases them.
    """
    if any(folder.has(scope) for scope in {each for pledge in pledges for each in pledge.scopes}):
        with folder.lock(wait_s=_RELEASE_LOCK_WAIT_S):
            _release(folder, pledges, now, why=why)


def _release(folder: BudgetFolder, pledges: Iterable[Pledge], now: datetime, *, why: str) -> None:
    lines: dict[Scope, list[str]] = defaultdict(list)
    for pledge in pledges:
        line = entry_line("released", now, pledge.by, *pledge.key, why=why)
        for scope in filter(folder.has, pledge.scopes):
            entry = folder.look(scope).entries.get(pledge.key)
            if entry is not None and entry.standing is Standing.COMMITTED:
                lines[scope].append(line)
    for scope, some in lines.items():
        folder.append(scope, some)


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
