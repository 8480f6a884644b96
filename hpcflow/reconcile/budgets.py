"""Reconcile budgets with the attempts that they have commitments for.

Usually an attempt's commitment is settled when its bill is journaled. This handles the other cases:
hpcflow was killed in between, a standby was given up, Slurm restarted a job, a user submitted one
by hand, or a budget was set while jobs ran. The up-to-date ledger says where to look; only the
journal decides what is released, under the run's lock.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from typing import Final

from hpcflow.budgets.amounts import NOTHING, Amounts, billed
from hpcflow.budgets.folder import MOST_MEMORY, BudgetFolder, budgets_of
from hpcflow.budgets.records import entry_line
from hpcflow.budgets.scope import KINDS, Scope
from hpcflow.budgets.state import Budget, Entry, Standing
from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError, LedgerError, StorageError, shell_word, words_for
from hpcflow.history import Sending
from hpcflow.launch.committing import commitment_of
from hpcflow.launch.submission import SENDING_TAKES
from hpcflow.ledger.rows import SpendingRow
from hpcflow.model.next_action import AWAIT_STANDBY
from hpcflow.model.units import counted
from hpcflow.reconcile.context import RefreshContext
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_path_untrusted, linked

_log = logging.getLogger(__name__)

#: The costs of an array are committed before its first run is created, and scratch may be slow.
_MAKING_TAKES: Final = timedelta(hours=1)
#: Problems reported for one folder: other users can create any number of files in it.
_MOST_NAMED: Final = 10
#: Lines that one look adds to one budget for attempts that the ledger lacks: a teammate can commit
#: to any number of attempts.
_MOST_LINES: Final = 1_000
#: Journals that one look reads: a teammate can name each of the caller's attempts.
_MOST_JOURNALS: Final = 2_000
#: Projects without runs of the caller that one look reads: a teammate can make any number of files.
_MOST_OTHERS: Final = 1_000


def reconcile_budgets(
    context: RefreshContext, folders: Iterable[BudgetFolder], scope: Scope | None = None
) -> list[str]:
    """Reconcile budgets with the caller's own attempts; return warnings. The next call tries again.

    Args:
        context: ``find_site`` is called for each run.
        scope: a budget that is reconciled in any case.
    """
    different = {each.path: each for each in folders}.values()
    looks = [_Look(context, each) for each in different]
    return [problem for look in looks for problem in look.problems(scope)]


@dataclass(frozen=True)
class _Sendings:
    """The last submission of each attempt or standby of one run.

    Attributes:
        is_linked: whether the home has this run.
        last: attempt number -> submission; None if the journal cannot be read now.
    """

    is_linked: bool
    last: dict[int, Sending] | None = None


@dataclass
class _Look:
    _context: RefreshContext
    _folder: BudgetFolder
    _sites: dict[str, bool] = field(default_factory=dict)
    _sizes: dict[Scope, int] = field(default_factory=dict)
    _lines: dict[Scope, list[str]] = field(default_factory=lambda: defaultdict(list))
    # By run: another user can name one run in any number of lines, and a journal may be long.
    _sendings: dict[str, _Sendings] = field(default_factory=dict)
    _own: dict[str, frozenset[int] | None] = field(default_factory=dict)
    _problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        context = self._context
        self._home, self._user = context.settings.home, context.settings.user
        self._clock, self._find_site = context.clock, context.find_site

    def problems(self, scope: Scope | None) -> list[str]:
        """Reconcile each budget, isolating errors; return the warnings."""
        with self._guarded(None):
            self._go(scope)
        named = list(dict.fromkeys(self._problems))
        more = len(named) - _MOST_NAMED
        return named[:_MOST_NAMED] + ([f"budgets: {more} more problems"] if more > 0 else [])

    @contextmanager
    def _guarded(self, scope: Scope | None) -> Iterator[None]:
        """Note an error of one budget, or of the folder, so that the others are reconciled."""
        try:
            yield
        except Exception as error:  # other users' files must not end the look
            self._note(scope, error)

    def _note(self, scope: Scope | None, error: Exception) -> None:
        if isinstance(error, LedgerError):
            raise error
        if isinstance(error, HpcflowError):
            self._problems.append(f"budgets: {error.message}")
            return
        where = self._folder.path if scope is None else self._folder.file(scope)
        _log.debug("budgets in %s", where, exc_info=error)
        self._problems.append(f"budgets in {where}: {words_for(error)}")

    def _go(self, scope: Scope | None) -> None:
        there = self._folder.scopes()
        if not there:
            return
        found = self._context.ledger.spending_unsettled(user=self._user)
        rows = [row for row in found if self._is_here(row)]
        own = self._own_scopes(rows, there)
        if scope is not None and scope in there:
            own.add(scope)
        budgets = self._read_budgets(own, there)
        by_key = {(row.run_id, row.attempt): row for row in rows}
        for budget in budgets:
            self._follow_all(budget, by_key)
        self._adopt_all(rows, budgets)
        if self._lines:
            self._append_all()

    def _read_budgets(self, own: set[Scope], there: Sequence[Scope]) -> list[Budget]:
        """Read the budgets, the caller's own first, then small ones: a teammate's files may exceed
        the memory limit."""
        budgets: list[Budget] = []
        memory = 0
        for each in sorted(
            own.union(self._others(there, own)),
            key=lambda each: (each not in own, self._size(each), each),
        ):
            with self._guarded(each):
                self._sizes[each] = self._folder.size(each)
                budget = self._folder.look(each)
                if budget.terms is None:
                    continue
                if memory + budget.memory > MOST_MEMORY:
                    raise self._too_large(each)
                memory += budget.memory
                budgets.append(budget)
        return budgets

    def _follow_all(self, budget: Budget, by_key: dict[tuple[str, int], SpendingRow]) -> None:
        """Follow the open entries of one budget; add missing rows to ``by_key``."""
        entries = [each for each in budget.entries.values() if self._is_open(each)]
        unknown = {each.run_id for each in entries if (each.run_id, each.attempt) not in by_key}
        for row in self._context.ledger.spending(run_ids=sorted(unknown)) if unknown else ():
            by_key[row.run_id, row.attempt] = row
        # A teammate's lines do not delay attempts that the ledger has.
        others: list[Entry] = []
        for entry in entries:
            known = by_key.get((entry.run_id, entry.attempt))
            if known is None:
                others.append(entry)
            else:
                self._try_to_follow(budget, entry, known)
        most = len(self._lines.get(budget.scope, ())) + _MOST_LINES
        for entry in others:
            if len(self._lines.get(budget.scope, ())) >= most:
                break  # the next look continues
            self._try_to_follow(budget, entry, None)

    def _adopt_all(self, rows: Sequence[SpendingRow], budgets: Sequence[Budget]) -> None:
        """Add a commitment for each active attempt without one."""
        projects, users, sweeps, runs = (
            {each.scope.name: each for each in budgets if each.scope.kind == kind} for kind in KINDS
        )
        for row in rows:
            of_row = (
                projects.get(row.project),
                users.get(row.user),
                sweeps.get(row.sweep or ""),
                runs.get(row.run_id),
            )
            concerned = [budget for budget in of_row if budget is not None]
            if row.is_over or not concerned:
                continue
            self._adopt(row, row.attempt, concerned)
            if row.next_action != AWAIT_STANDBY:
                continue
            # Usually the standby has the next number, and no journal is read.
            is_known = all(each.is_committed_to(row.run_id, row.attempt + 1) for each in concerned)
            if not is_known and (standby := standby_of(row, self._home)) is not None:
                self._adopt(row, standby, concerned)

    def _append_all(self) -> None:
        with self._folder.lock(self._clock, wait_s=0):
            for where, lines in self._lines.items():
                # A file that has grown since has unknown lines; the next look reads them.
                with self._guarded(where):
                    if self._folder.size(where) == self._sizes[where]:
                        self._folder.append(where, lines)

    def _own_scopes(self, rows: Sequence[SpendingRow], there: Sequence[Scope]) -> set[Scope]:
        """Return those of ``there`` that are always read. Only active sweeps and runs: there may be
        a budget for each old one."""
        moving = [row for row in rows if not row.is_billed_for_good]
        names: dict[str, set[str]] = {
            "project": {row.project for row in rows},
            "user": {self._user, *(row.user for row in moving)},
            "sweep": {row.sweep for row in moving if row.sweep is not None},
            "run": {row.run_id for row in moving},
        }
        return {each for each in there if each.name in names[each.kind]}

    def _others(self, there: Sequence[Scope], own: Collection[Scope]) -> list[Scope]:
        """Return the other projects, which may have commitments of ended attempts. No attempt of
        the caller counts against another user's budget."""
        found = [each for each in there if each.kind == "project" and each not in own]
        if (more := len(found) - _MOST_OTHERS) > 0:
            folder = self._folder.path / "project"
            # The caller's projects first: ended runs may have commitments there.
            known = set(self._context.ledger.projects(user=self._user))
            found.sort(key=lambda each: each.name not in known)
            self._problems.append(
                f"budgets: {counted(more, 'file')} in {folder} not read: hpcflow reads "
                f"those of your runs and {_MOST_OTHERS} others; find the files of no project, "
                f"and remove them: ls -lt {shell_word(folder)}"
            )
        return found[:_MOST_OTHERS]

    def _size(self, scope: Scope) -> int:
        try:
            return self._folder.size(scope)
        except StorageError:  # reported when it is read
            return 0

    def _too_large(self, scope: Scope) -> StorageError:
        file = self._folder.file(scope)
        return StorageError(
            f"{file} is left out: the budgets of its folder take more than {MOST_MEMORY >> 20} MiB "
            "of memory",
            next_action=f"see which is large: ls -lS {shell_word(file.parent)}",
        )

    @cached_property
    def _real_home(self) -> str:
        return os.path.realpath(self._home.path)

    def _is_here(self, row: SpendingRow) -> bool:
        if row.site not in self._sites:
            try:
                folder = budgets_of(self._find_site(row.site), self._home)
                self._sites[row.site] = folder.path == self._folder.path
            except HpcflowError:  # the round has reported the missing site file
                self._sites[row.site] = False
        return self._sites[row.site]

    def _is_open(self, entry: Entry) -> bool:
        """Return whether an entry of the caller is not final."""
        if entry.by != self._user or entry.standing is Standing.RELEASED:
            return False
        if entry.home not in (None, self._real_home):
            return False
        return entry.standing is Standing.COMMITTED or not entry.is_final

    def _try_to_follow(self, budget: Budget, entry: Entry, row: SpendingRow | None) -> None:
        try:
            self._follow(budget, entry, row)
        except Exception as error:  # not _guarded, which is slow for ten thousand entries
            self._note(budget.scope, error)

    def _follow(self, budget: Budget, entry: Entry, row: SpendingRow | None) -> None:
        is_committed = entry.standing is Standing.COMMITTED
        if row is not None and row.is_over and row.job_id is not None:
            if row.billed_by is not None and (is_committed or row.is_billed_for_good):
                self._settle(
                    budget, entry, row, billed_amounts(row), is_final=row.is_billed_for_good
                )
            elif is_committed and row.billed_by is None:
                # Without a run directory there will be no bill, and all that was committed counts.
                # If the bill is due later, the times count until then: the next attempt waits.
                is_to_come = row.bill_due_at is not None
                amounts = _by_times(entry, row) if is_to_come else entry.amounts
                self._settle(budget, entry, row, amounts, is_final=False)
        elif is_committed and row is not None and not row.is_over:
            if row.started_at is not None and entry.began_at is None:
                self._say(budget, "began", entry, began_at=row.started_at)
        elif (
            is_committed
            and (row is not None or self._clock.now() - entry.at > SENDING_TAKES)
            and self._is_void(entry)
        ):
            self._say(budget, "released", entry, why="it never became a job")

    def _settle(
        self, budget: Budget, entry: Entry, row: SpendingRow, amounts: Amounts, *, is_final: bool
    ) -> None:
        now = self._clock.now()
        ended_at = row.ended_at or now
        if row.run_id not in self._own and len(self._own) >= _MOST_JOURNALS:
            return  # the next look continues
        if not self._is_own(row):
            # Its end and bill are only in the ledger, or from a store: other users write there.
            if entry.standing is not Standing.COMMITTED:
                return
            amounts, is_final = entry.amounts, False
            ended_at = min(max(ended_at, entry.at), now)
        self._say(budget, "settled", entry, amounts=amounts, ended_at=ended_at, is_final=is_final)

    def _is_own(self, row: SpendingRow) -> bool:
        """Return whether the journal has an attempt's usage from Slurm's answers to this user."""
        if row.run_id not in self._own:
            self._own[row.run_id] = self._read_own(row.run_id)
        own = self._own[row.run_id]
        return own is None or row.attempt in own

    def _read_own(self, run_id: str) -> frozenset[int] | None:
        """Return a run's own attempts, as in :meth:`_is_own`; None for all."""
        for run_dir in linked(self._home, [run_id]):
            with suppress(StorageError):
                history = Journal(run_dir).history
                own = history.own_attempts
                return None if own is None else own | {each.attempt for each in history.own_bills}
        return frozenset()

    def _is_void(self, entry: Entry) -> bool:
        """Return whether an attempt certainly has no job, and no process is submitting it."""
        is_old = self._clock.now() - entry.at > _MAKING_TAKES
        if entry.run_id not in self._sendings:
            self._sendings[entry.run_id] = self._read_sendings(entry.run_id)
        sendings = self._sendings[entry.run_id]
        if not sendings.is_linked:  # its creation was killed, or it belongs to another home
            is_known = is_old and entry.home is not None
            return is_known and not is_path_untrusted(self._home, entry.run_id)
        if sendings.last is None:
            return False
        last = sendings.last.get(entry.attempt)
        if last is not None and last.is_job:  # perhaps long before the commitment
            return False
        # A refused number is reused: a refusal before the commitment is of an earlier submission.
        if last is None or last.at < entry.at:
            return is_old
        return last.is_void

    def _read_sendings(self, run_id: str) -> _Sendings:
        run_dirs = linked(self._home, [run_id])
        if not run_dirs:
            return _Sendings(is_linked=False)
        (run_dir,) = run_dirs
        try:
            with submit_lock(run_dir, wait_s=0):
                return _Sendings(is_linked=True, last=Journal(run_dir).history.last_sending)
        except StorageError:  # it is being submitted, or is missing or unreadable
            return _Sendings(is_linked=True)

    def _say(
        self, budget: Budget, record: str, entry: Entry, *, amounts: Amounts | None = None,
        **more: object,
    ) -> None:  # fmt: skip
        line = entry_line(
            record, self._clock.now(), entry.by, entry.run_id, entry.attempt, amounts=amounts,
            **more,
        )  # fmt: skip
        self._lines[budget.scope].append(line)

    def _adopt(self, row: SpendingRow, attempt: int, budgets: Sequence[Budget]) -> None:
        """Add a commitment for an active attempt or a standby without one, even without room."""
        key = (row.run_id, attempt)
        for budget in budgets:
            entry = budget.entries.get(key)
            if entry is not None and entry.standing is not Standing.RELEASED:
                continue
            with self._guarded(budget.scope):
                if entry is None and not budget.is_whole and key in self._folder.past(budget.scope):
                    continue  # settled long ago, but the ledger lacks its end
                found = adopted(row, attempt, self._home, self._find_site, self._clock)
                if found is None:
                    return
                self._lines[budget.scope].append(found)


def standby_of(row: SpendingRow, home: Home) -> int | None:
    """Return the number of the standby that a live attempt awaits, from the journal; None if it is
    not one, or if the run cannot be read."""
    try:
        last = Journal(home.run_dir(row.run_dir)).history.last
    except HpcflowError:
        return None
    is_waiting = last.number == row.attempt and last.standby is not None and last.has_standby
    return last.standby.number if is_waiting and last.standby is not None else None


def adopted(
    row: SpendingRow,
    attempt: int,
    home: Home,
    find_site: Callable[[str], Site],
    clock: Clock,
) -> str | None:
    """Return the commitment line for an active attempt. None if the run cannot be read (another
    user's, or missing), or if only a store has the attempt."""
    run_dir = home.run_dir(row.run_dir)
    try:
        run, site = read_run(run_dir), find_site(row.site)
        placement = place(run.spec, site, prefer=run.partition, is_granted=True)
        is_own = Journal(run_dir).history.attempt(attempt).is_own
    except HpcflowError:
        return None
    if not is_own:
        return None
    pledge = commitment_of(run, attempt, placement, site=site, home=home, clock=clock).pledge
    return pledge.to_line(clock.now())


def _by_times(entry: Entry, row: SpendingRow) -> Amounts:
    """Return the amounts of an ended attempt: the commitment, in proportion to its time."""
    if row.started_at is None:
        return NOTHING
    if row.ended_at is None or not entry.limit_s:
        return entry.amounts
    ran_s = max(0.0, (row.ended_at - row.started_at).total_seconds())
    return entry.amounts * (Decimal(str(ran_s)) / entry.limit_s)


def billed_amounts(row: SpendingRow) -> Amounts:
    return billed(row.cost_usd, row.cost_su, row.gpu_hours, row.elapsed_s)
