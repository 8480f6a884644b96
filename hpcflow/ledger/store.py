"""The ledger's only writer, and its queries."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from hpcflow.errors import LedgerError, LedgerValueError
from hpcflow.ledger import cost_queries, queries, run_queries
from hpcflow.ledger import ends as end_queries
from hpcflow.ledger import used as used_queries
from hpcflow.ledger.clauses import among, without_spoofed
from hpcflow.ledger.codec import DamagedError, columns, decode_sound, selected
from hpcflow.ledger.connection import Connection, damaged
from hpcflow.ledger.rows import ROWS, Change, CheckpointRow, Known, MirroredRow
from hpcflow.ledger.upgrade import require_head
from hpcflow.ledger.url import DatabaseUrl, parse_url
from hpcflow.ledger.writing import value_error, write

P = ParamSpec("P")
Result = TypeVar("Result")

#: Most runs that one report names.
_MAX_NAMED: Final = 10
#: Most runs that are remembered: other roles can write new ones all the time.
_MAX_REPORTED: Final = 1_000


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


def _method(
    query: Callable[Concatenate[Connection, P], Result],
) -> Callable[Concatenate[Ledger, P], Result]:
    """Return a query as a method of a ledger: damaged rows are reported."""

    @wraps(query)
    def method(self: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        with self._reading() as connection:
            return query(connection, *args, **kwargs)

    return method


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

    def __exit__(self, *_: object) -> None:
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

    runs = _method(run_queries.runs)
    shared_run = _method(run_queries.shared_run)
    run = _method(run_queries.run)

    live_attempts = _method(queries.live_attempts)
    running = _method(queries.running)
    owners = _method(queries.owners)
    run_ids = _method(queries.run_ids)
    trial_runs = _method(queries.trial_runs)
    unsent = _method(queries.unsent)
    unsettled = _method(queries.unsettled)
    how_far = _method(queries.how_far)
    bytes_read = _method(queries.bytes_read)
    at_work = _method(queries.at_work)
    undecided = _method(queries.undecided)
    alive_due = _method(queries.alive_due)
    ended_by_older = _method(queries.ended_by_older)
    resting_at = _method(queries.resting_at)
    of_others = _method(queries.of_others)
    due = _method(queries.due)
    due_bills = _method(queries.due_bills)
    waiting_for = _method(queries.waiting_for)
    pending_for_nodes = _method(queries.pending_for_nodes)

    bills = _method(cost_queries.bills)
    jobs = _method(cost_queries.jobs)
    sites = _method(cost_queries.sites)
    storing = _method(cost_queries.storing)
    left = _method(cost_queries.left)
    spending = _method(cost_queries.spending)
    sites_unsettled = _method(cost_queries.sites_unsettled)
    projects = _method(cost_queries.projects)
    spending_unsettled = _method(cost_queries.spending_unsettled)
    spending_under_way = _method(cost_queries.spending_under_way)
    used = _method(used_queries.used)
    ends = _method(end_queries.ends)
    observed = _method(end_queries.observed)

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
        """Open the connection for a query; report damaged rows."""
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


class LeftOutRuns:
    """The runs that were left out so far. Each is reported once, up to a limit."""

    def __init__(self, warn: Callable[[str], object] | None) -> None:
        """Report to ``warn``, one line for each warning; None for no warnings."""
        self._warn = warn
        self._reported: set[str] = set()
        self._is_full = False

    def report(self, connection: Connection, left_out: Mapping[str, str]) -> None:
        """Warn about the runs of ``left_out``, run id -> reason, that were not reported before."""
        new = {run_id: why for run_id, why in left_out.items() if run_id not in self._reported}
        if self._warn is None or not new or self._is_full:
            return
        count = len(self._reported) + len(new)
        self._is_full = count > _MAX_REPORTED
        if not self._is_full:
            self._reported.update(new)
        named = list(new.items())[:_MAX_NAMED]
        owners = queries.owners(connection, [run_id for run_id, _ in named], everyone=True)
        for run_id, why in named:
            self._warn(
                f"run {run_id[:80]} of user {str(owners.get(run_id, '?'))[:80]} is left out: a row "
                f"of it in the ledger is damaged or too large ({why[:120]}); its owner can rebuild "
                "it from the files: hpcflow ledger rebuild"
            )
        if len(new) > len(named):
            self._warn(f"{len(new) - len(named)} more runs are left out, for the same reason")
        if self._is_full:
            self._warn(
                f"{count} runs are left out so far because of damaged rows in the ledger; hpcflow "
                "reports no more of them"
            )


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection in the block.

    Tens of thousands of rows and jobs contain no cycles. Collections among them take a quarter of a
    round, and much longer if another role has written JSON with many values.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
