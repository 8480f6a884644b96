"""The ledger's only writer, and its queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from hpcflow.errors import LedgerError, LedgerValueError
from hpcflow.ledger import cost_report, queries, run_queries, spending
from hpcflow.ledger.clauses import among, without_spoofed
from hpcflow.ledger.codec import DamagedError, columns, decode_sound, selected
from hpcflow.ledger.connection import Connection, damaged
from hpcflow.ledger.ends import End, ends
from hpcflow.ledger.garbage import no_collection
from hpcflow.ledger.left_out import LeftOutRuns
from hpcflow.ledger.rates import Observed, observed
from hpcflow.ledger.rows import (
    ROWS,
    BilledRow,
    Change,
    CheckpointRow,
    DueBill,
    HowFar,
    JobRow,
    Known,
    MirroredRow,
    RunningRow,
    SpendingRow,
    StoringRow,
)
from hpcflow.ledger.upgrade import require_head
from hpcflow.ledger.url import DatabaseUrl, parse_url
from hpcflow.ledger.used import UsedRow, used
from hpcflow.ledger.writing import value_error, write
from hpcflow.model.state import Cause, RunState
from hpcflow.model.views import AttemptView, LiveRun, RunDetail, RunView

Row = TypeVar("Row")


def open_ledger(url: str, warn: Callable[[str], object] | None = None) -> Ledger:
    """Open a ledger; create an empty or missing database.

    Args:
        url: ``sqlite:////absolute/path``, ``postgresql://user@host/name``, or a path.
        warn: as in :class:`Ledger`.

    Raises:
        InputError: not such a URL.
        LedgerVersionError: its tables are older or newer than this hpcflow.
    """
    ledger = Ledger(parse_url(url), warn)
    ledger.connection()
    return ledger


class Ledger:
    """One open ledger; not to be shared between threads. Every method may raise LedgerError.

    The next call reopens a broken connection, and a database file that was deleted or replaced,
    because a write to a deleted file would be lost.

    In a shared database a role can change only its own rows, and methods read only these. With
    ``everyone``, they also read rows of other roles; :meth:`ends` and :meth:`observed` always do.
    Queries of many rows leave damaged rows out.
    """

    def __init__(self, url: DatabaseUrl, warn: Callable[[str], object] | None = None) -> None:
        """Prepare the ledger at ``url``; the first query opens it.

        Args:
            warn: is called once, with one line, for each run whose rows are left out.
        """
        self.url = url
        #: Ids of runs with a value that the database cannot store. They are not tried again.
        self.misfits: set[str] = set()
        self._left_out = LeftOutRuns(warn)
        self._connection: Connection | None = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connection(self) -> Connection:
        """Return the open connection, to a database with the tables of this version."""
        if self._connection is not None and self._connection.is_lost:
            self.close()
        if self._connection is None:
            connection = Connection(self.url)
            try:
                require_head(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def runs(
        self,
        *,
        limit: int | None = None,
        states: Iterable[RunState] | None = None,
        project: str | None = None,
        user: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        sweep: str | None = None,
        has_sweep: bool | None = None,
        since: datetime | None = None,
        everyone: bool = False,
    ) -> list[RunView]:
        """Return the matching runs, newest first; see :func:`hpcflow.ledger.run_queries.runs`."""
        with self._reading() as connection:
            return run_queries.runs(
                connection,
                limit=limit,
                states=states,
                project=project,
                user=user,
                tag=tag,
                name=name,
                sweep=sweep,
                has_sweep=has_sweep,
                since=since,
                everyone=everyone,
            )

    def shared_run(self, text: str) -> RunDetail | None:
        """Return any user's run with this id, name or unique prefix; None if there is none."""
        with self._reading() as connection:
            return run_queries.shared_run(connection, text)

    def run(self, run_id: str) -> RunDetail:
        """Return one run with all its details, or raise NotFoundError."""
        with self._reading() as connection:
            return run_queries.run(connection, run_id)

    def live_attempts(self, *, user: str) -> list[tuple[LiveRun, AttemptView]]:
        """Return the user's attempts that are neither ended nor withdrawn, with their runs."""
        with self._reading() as connection:
            return queries.live_attempts(connection, user)

    def running(self, *, user: str) -> list[RunningRow]:
        """Return the user's running attempts, with the reports of their jobs."""
        with self._reading() as connection:
            return queries.running(connection, user)

    def owners(self, run_ids: Iterable[str]) -> dict[str, str]:
        """Return run id -> user; unknown runs are missing."""
        return queries.owners(self.connection(), run_ids)

    def bytes_read(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Return run id -> number of bytes read; unknown runs are missing."""
        return queries.bytes_read(self.connection(), run_ids) if run_ids else {}

    def run_ids(self, *, user: str | None = None) -> set[str]:
        """Return the ids of all runs, or of one user's."""
        return queries.run_ids(self.connection(), user)

    def trial_runs(self, sweep_id: str, name: str, *, user: str) -> list[str]:
        """Return the ids of the user's runs that are trials of this sweep."""
        with self._reading() as connection:
            return queries.trial_runs(connection, sweep_id, name, user)

    def unsent(self, user: str | None = None) -> list[tuple[str, str]]:
        """Return id and run directory of all runs, or of one user's, that never had a job."""
        with self._reading() as connection:
            return queries.unsent(connection, user)

    def unsettled(self, now: datetime) -> set[str]:
        """Return the ids of the runs whose files may still grow."""
        return queries.unsettled(self.connection(), now)

    def how_far(self, run_ids: Sequence[str]) -> dict[str, HowFar]:
        """Return how far the files of these runs were read; unknown runs are missing."""
        return queries.how_far(self.connection(), run_ids)

    def at_work(self, *, user: str, limit: int) -> list[tuple[str, int]]:
        """Return run directory and number of at most ``limit`` running attempts of the user."""
        return queries.at_work(self.connection(), user, limit)

    def undecided(self, now: datetime, *, user: str) -> list[str]:
        """Return the ids of the user's runs that need a decision, longest wait first."""
        return queries.undecided(self.connection(), now, user)

    def alive_due(self, action: str, *, user: str) -> list[str]:
        """Return the ids of the user's runs with this next action of which a job may be alive."""
        return queries.alive_due(self.connection(), action, user)

    def purged(self, *, user: str, since: datetime) -> list[str]:
        """Return the ids of the user's runs that would continue but whose directory is gone."""
        return queries.purged(self.connection(), since, user)

    def resting_at(self, *, user: str, since: datetime) -> list[str]:
        """Return the sites of the user's runs that came to rest uncompleted since then."""
        return queries.resting_at(self.connection(), user, since)

    def of_others(self, *, user: str) -> dict[str, str]:
        """Return run id -> user for other users' runs that are not completed or cancelled."""
        return queries.of_others(self.connection(), user)

    def due(self, action: str, now: datetime, *, user: str) -> list[str]:
        """Return the ids of the user's runs whose next action is ``action``, longest wait first."""
        return queries.due(self.connection(), now, action, user)

    def due_bills(self, now: datetime, *, user: str, limit: int) -> list[DueBill]:
        """Return the user's attempts for whose usage accounting must be queried now."""
        with self._reading() as connection:
            return queries.due_bills(connection, now, user, limit)

    def bills(
        self,
        *,
        since: datetime,
        until: datetime,
        filters: Mapping[str, str],
        everyone: bool = False,
    ) -> list[BilledRow]:
        """Return ended attempts that were jobs, with bills; filters: column of a run -> value."""
        with self._reading() as connection:
            return cost_report.bills(connection, since, until, filters, everyone=everyone)

    def used(
        self,
        *,
        run_id: str | None = None,
        since: datetime | None = None,
        filters: Mapping[str, str] | None = None,
        everyone: bool = False,
    ) -> list[UsedRow]:
        """Return allocation and usage of started attempts; filters as for bills."""
        with self._reading() as connection:
            return used(connection, run_id=run_id, since=since, filters=filters, everyone=everyone)

    def jobs(self, *, user: str) -> list[JobRow]:
        """Return all attempts of a user that are, or were, jobs."""
        with self._reading() as connection:
            return cost_report.jobs(connection, user)

    def sites(self, *, filters: Mapping[str, str], everyone: bool = False) -> list[str]:
        """Return the site names of all matching runs; filters as for bills."""
        return cost_report.sites(self.connection(), filters, everyone=everyone)

    def storing(
        self, sites: Sequence[str], *, filters: Mapping[str, str], everyone: bool = False
    ) -> list[StoringRow]:
        """Return the runs of these sites and their checkpoint storage; filters as for bills."""
        if not sites:
            return []
        with self._reading() as connection:
            return cost_report.storing(connection, sites, filters, everyone=everyone)

    def left(
        self, sites: Sequence[str], since: datetime, *, everyone: bool = False
    ) -> tuple[set[str], set[str]]:
        """Return the ids of runs of these sites without a checkpoint since: in a store; on scratch.

        Runs that may have fetched a checkpoint since are excluded.
        """
        if not sites:
            return set(), set()
        with self._reading() as connection:
            return (
                cost_report.left_stores(connection, sites, since, everyone=everyone),
                cost_report.left_scratch(connection, sites, since, everyone=everyone),
            )

    def spending(
        self,
        *,
        filters: Mapping[str, str] | None = None,
        run_ids: Sequence[str] | None = None,
        everyone: bool = False,
    ) -> list[SpendingRow]:
        """Return all attempts of the runs with these values of columns, or with these ids."""
        with self._reading() as connection:
            if run_ids is not None:
                return spending.of_runs(connection, run_ids)
            return spending.of_runs_with(connection, filters or {}, everyone=everyone)

    def sites_unsettled(self, *, user: str) -> list[str]:
        """Return the sites of a user's runs that can still cost more or get a bill."""
        return spending.sites_unsettled(self.connection(), user)

    def projects(self, *, user: str) -> list[str]:
        return spending.projects(self.connection(), user)

    def spending_unsettled(self, *, user: str) -> list[SpendingRow]:
        """Return the attempts of a user's runs that can still cost more or get a bill."""
        with self._reading() as connection:
            return spending.unsettled(connection, user)

    def spending_under_way(self, *, user: str) -> list[SpendingRow]:
        """Return the attempts of a user's runs with a started attempt that has not ended."""
        with self._reading() as connection:
            return spending.under_way(connection, user)

    def ends(self, causes: Iterable[Cause], *, since: datetime, until: datetime) -> list[End]:
        """Return the ends of all users' attempts between two times, for these causes."""
        with self._reading() as connection:
            return ends(connection, causes, since=since, until=until)

    def observed(
        self,
        causes: frozenset[Cause],
        *,
        site: str,
        partition: str,
        since: datetime,
        now: datetime,
    ) -> Observed:
        """Return the run times of all users' attempts in a partition, and their ends."""
        with self._reading() as connection:
            return observed(
                connection, causes, site=site, partition=partition, since=since, now=now
            )

    def waiting_for(self, reason: str, *, user: str) -> list[str]:
        """Return the ids of the user's runs with an attempt that is pending for this reason."""
        return queries.waiting_for(self.connection(), reason, user)

    def pending_for_nodes(self, *, user: str) -> list[str]:
        """Return the ids of some of the user's runs that are pending for unavailable nodes."""
        return queries.pending_for_nodes(self.connection(), user)

    def known(self, run_ids: Sequence[str]) -> dict[str, Known]:
        """Return the stored rows of these runs at one moment, without damaged runs."""
        if not run_ids:  # an empty list is not valid SQL everywhere
            return {}
        with self._reading() as connection, connection.transaction(write=False):
            found = {row.run_id: Known(row) for row in _load(connection, "run", run_ids)}
            for table in ("attempt", "source"):
                for row in _load(connection, table, run_ids):
                    if (of := found.get(row.run_id)) is not None:
                        (of.attempts if table == "attempt" else of.sources).append(row)
            for run_id in connection.left_out:
                found.pop(run_id, None)
        return found

    def checkpoints(self, run_ids: Sequence[str]) -> list[CheckpointRow]:
        with self._reading() as connection:
            found: list[CheckpointRow] = _load(connection, "checkpoint", run_ids)
            return found

    def mirrored(self, run_ids: Sequence[str], *, everyone: bool = False) -> list[MirroredRow]:
        """Return the mirror states of the checkpoints of these runs."""
        with (
            self._reading() as connection,
            connection.transaction(write=False, everyone=everyone),
        ):
            found: list[MirroredRow] = _load(connection, "mirrored", run_ids, everyone=everyone)
        return found

    def damaged(self, why: str) -> LedgerError:
        """Return the error for damaged rows: where they are, and what to do."""
        return damaged(self.url, why)

    def apply(self, changes: Sequence[Change]) -> list[str]:
        """Write changes, each wholly or not at all, together with the offsets of the files.

        A change is skipped if another process wrote to its run after the rows were read, so two
        readers never count the same lines twice. Return the ids of the skipped runs.

        Raises:
            LedgerValueError: the database cannot store a value; nothing was written.
        """
        try:
            return write(self.connection(), changes)
        except (LedgerValueError, ValueError, ArithmeticError, RecursionError) as error:
            raise value_error(changes, error) from None

    def forget_unsent(self, run_ids: Sequence[str]) -> None:
        """Delete these runs with all their rows, except runs with a known job."""
        connection = self.connection()
        with connection.transaction(write=True):
            sql = "DELETE FROM run WHERE run_id = ? AND job_id IS NULL"
            connection.execute_many(sql, [[run_id] for run_id in sorted(run_ids)])

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        connection = self.connection()
        try:
            with no_collection():
                yield connection
        except DamagedError as error:
            of_row = self.damaged(str(error))
            rebuild = "rebuild its rows from the files: hpcflow ledger rebuild"
            of_row.next_action = f"{rebuild}; if that does not help, {of_row.next_action}"
            raise of_row from None
        if connection.left_out:
            left_out, connection.left_out = connection.left_out, {}
            self._left_out.report(connection, left_out)


def _load(
    connection: Connection, table: str, run_ids: Sequence[str], *, everyone: bool = False
) -> list[Any]:
    """Return the rows of these runs by key; DamagedError if an index and its table disagree."""
    row_type = ROWS[table]
    names = columns(row_type)
    key = {"run": "run_id", "attempt": "run_id, attempt"}.get(table, "run_id, path")
    what = selected(connection.url.kind, row_type, names, everyone=everyone)
    rows: list[Any] = []
    for is_one, ids in among(connection, run_ids):
        where = f"run_id {is_one}{without_spoofed(connection, table, everyone=everyone)}"
        sql = f"SELECT {what} FROM {table} WHERE {where} ORDER BY {key}"  # noqa: S608 - our names, and marks
        found = connection.rows(sql, ids)
        rows += decode_sound(row_type, names, found, row_type, connection.left_out)
    strange = {row.run_id for row in rows}.difference(run_ids)
    if strange:
        raise DamagedError(f"a query for other runs returned {min(strange)[:80]!r}")
    return rows
