"""Connect to SQLite or Postgres: statements, transactions, and errors for people.

Statements are written once, with ``?`` for parameters, in the SQL that both databases share.
Parameters are text, numbers, booleans and None (``codec.py``); Postgres also takes a list of texts.
Importing this imports no database driver.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from hpcflow.errors import LedgerError, LedgerValueError, shell_word
from hpcflow.filesystem import is_shared
from hpcflow.ledger.other_roles import refuse_other_roles
from hpcflow.ledger.url import DatabaseUrl
from hpcflow.resources import install_extra

if TYPE_CHECKING:
    import sqlite3

CONNECT_TIMEOUT_S = 3
#: How long a statement waits for locks; hpcflow's own statements take milliseconds.
BUSY_TIMEOUT_S = 10.0
#: A rebuild writes 200 runs at a time, in seconds; Postgres cancels a longer statement.
STATEMENT_TIMEOUT_S = 60.0
#: A process that stops in a transaction, or whose machine is lost, holds its locks at most this
#: long. hpcflow leaves milliseconds between two statements.
IDLE_TIMEOUT_S = 30.0
#: For a server that does not acknowledge: its machine or the network is down.
ACKNOWLEDGE_TIMEOUT_S = 20.0
#: Options of libpq, so that no server can block a command for ever.
POSTGRES_OPTIONS: Final[dict[str, Any]] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "tcp_user_timeout": round(ACKNOWLEDGE_TIMEOUT_S * 1000),
    # Without these it takes hours to notice that the server's machine is down.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
#: For a server whose process or disk hangs. Any other server ends the statement before that.
ANSWER_TIMEOUT_S = STATEMENT_TIMEOUT_S + 15.0


VERSION_TABLE: Final = "hpcflow_version"
#: The tables and views of the ledger.
RELATIONS: Final = (
    *("run", "attempt", "checkpoint", "mirrored", "source", "lease"),
    *("mirror_lag", VERSION_TABLE),
)


class Cursor(Protocol):
    """The part of a DB-API cursor that this package uses."""

    rowcount: int

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection:
    """One open database; not to be shared between threads. Methods raise LedgerError on failure."""

    def __init__(self, url: DatabaseUrl) -> None:
        """Open the database, or raise LedgerError within seconds."""
        self.url = url
        self.is_sqlite = url.kind == "sqlite"
        self.is_broken = False
        #: Run id -> why rows of it were left out of a result.
        self.left_out: dict[str, str] = {}
        self._reads_any_time = False
        self._raw: Any
        with self._errors():
            self._raw = _open_sqlite(url) if self.is_sqlite else _open_postgres(url)
        self._file = _file_id(url) if self.is_sqlite else None

    @property
    def is_lost(self) -> bool:
        """Return whether it broke, or its file is no longer the ledger."""
        return self.is_broken or (self.is_sqlite and _file_id(self.url) != self._file)

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> Cursor:
        with self._errors():
            cursor: Cursor = self._raw.execute(self._native(sql), tuple(parameters))
            return cursor

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> int:
        """Run one statement for every row; return the number of changed rows."""
        with self._errors():
            cursor = self._raw.cursor()
            cursor.executemany(self._native(sql), list(rows))
            return int(cursor.rowcount)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        found: list[Any]
        with self._errors():
            try:
                found = self._raw.execute(self._native(sql), tuple(parameters)).fetchall()
            except Exception as error:
                if self.is_sqlite or self._reads_any_time or _UNREADABLE_TIME not in str(error):
                    raise
                self._reads_any_time = True
                _read_any_time(self._raw)
                found = self._raw.execute(self._native(sql), tuple(parameters)).fetchall()
            return found

    @contextmanager
    def transaction(self, *, write: bool, everyone: bool = False) -> Iterator[None]:
        """Run the block in a transaction; its reads see one state.

        Args:
            everyone: also read the rows that other Postgres roles have written.
        """
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if write:
            # At once, because turning a reader into a writer can fail in SQLite.
            begin = "BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN"
        elif self.is_sqlite:
            begin = "BEGIN"
        self.execute(begin)
        try:
            if everyone and not self.is_sqlite:
                self.execute("SELECT set_config('hpcflow.everyone', 'on', true)")
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def close(self) -> None:
        self._raw.close()

    @property
    def raw(self) -> Any:
        """The driver's own connection, for migrations."""
        return self._raw

    def _roll_back(self) -> None:
        try:
            self.execute("ROLLBACK")
        except LedgerError:
            self.is_broken = True  # a lost connection has rolled back by itself

    def _native(self, sql: str) -> str:
        return sql if self.is_sqlite else sql.replace("?", "%s")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the driver or the file system as a LedgerError without a password."""
        try:
            yield
        except _failures(self.is_sqlite) as error:
            self.is_broken = not self.is_sqlite
            raise ledger_error(self.url, error) from None


def _file_id(url: DatabaseUrl) -> tuple[int, int] | None:
    try:
        status = url.path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open_sqlite(url: DatabaseUrl) -> sqlite3.Connection:
    import sqlite3

    path = url.path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite would make it 0644
    raw = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    try:
        # The write-ahead log needs memory that only processes of one machine share. Writes that a
        # power failure loses are read again from the files.
        _set_journal_mode(raw, "DELETE" if is_shared(path) else "WAL")
        raw.execute("PRAGMA synchronous = NORMAL")
        # 32 MB; the default of 4 MB would cause fsyncs within every round over many runs.
        raw.execute("PRAGMA wal_autocheckpoint = 8000")
        raw.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        raw.close()
        raise
    return raw


def _set_journal_mode(raw: sqlite3.Connection, mode: str) -> None:
    """Set the mode, with retries: SQLite does not wait if two processes change it at once."""
    import sqlite3

    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            raw.execute(f"PRAGMA journal_mode = {mode}")
        except sqlite3.OperationalError as error:  # noqa: PERF203 - a retry loop
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _open_postgres(url: DatabaseUrl) -> Any:
    raw = connect_postgres(url, url.dsn, RELATIONS)
    from psycopg.types.string import TextLoader

    try:
        _prepare(raw)
    except BaseException:
        raw.close()
        raise
    raw.adapters.register_loader("json", TextLoader)  # decoded in one place for both databases
    return raw


def connect_postgres(
    url: DatabaseUrl,
    dsn: str,
    tables: Sequence[str],
) -> Any:
    """Return the driver's connection, with autocommit, after a check for code of other roles.

    Nothing of another role may be executed as this user.

    Args:
        dsn: for libpq, with the schemas that are used.
        tables: the names of the tables and views that are used.

    Raises:
        LedgerError: another role has put code there, or the driver is not installed.
        Exception: from the driver.
    """
    try:
        driver = _connection_with_timeout()
    except ImportError:
        missing = LedgerError(
            "this installation of hpcflow has no Postgres driver",
            next_action="install it: " + install_extra("postgres"),
        )
        missing.retryable = False
        raise missing from None
    raw = driver.connect(dsn, **POSTGRES_OPTIONS, autocommit=True)
    try:
        refuse_other_roles(url, raw, tables)
    except BaseException:
        raw.close()
        raise
    return raw


def _connection_with_timeout() -> Any:
    """Return the driver's class with :data:`ANSWER_TIMEOUT_S` as the limit of a statement."""
    import psycopg

    def limited(steps: Any) -> Any:
        end = time.monotonic() + ANSWER_TIMEOUT_S
        ready = None
        while True:
            try:
                wanted = steps.send(ready)
            except StopIteration as done:
                return done.value
            ready = yield wanted  # the driver resumes every 0.1 s, even without data
            if not ready and time.monotonic() > end:
                raise psycopg.OperationalError("the server does not answer")

    class ConnectionWithTimeout(psycopg.Connection[Any]):
        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            return super().wait(limited(gen), *args, **options)

    return ConnectionWithTimeout


#: The driver's message for infinity, or for a year that Python does not support.
_UNREADABLE_TIME: Final = "timestamp too"


def _read_any_time(raw: Any) -> None:
    """Load times that Python does not support as text, so that they do not block all rows.

    Called only once there is one, because this loader is slower than the driver's.
    """
    from psycopg import DataError
    from psycopg.types.datetime import TimestamptzLoader

    class TimeOrText(TimestamptzLoader):
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except DataError:
                return bytes(data).decode()

    raw.adapters.register_loader("timestamptz", TimeOrText)


def _prepare(raw: Any) -> None:
    """Set the options of the session."""
    raw.execute(
        "SET timezone TO 'UTC'; "  # early times cannot be read in zones west of UTC
        "SET hpcflow.everyone TO ''; "  # the role or the database may set it
        # Rows are queried by key, and are in memory: with the default cost of a seek the planner
        # would read a whole table for each batch.
        "SET random_page_cost TO 1.1; "
        f"SET lock_timeout TO {round(BUSY_TIMEOUT_S * 1000)}; "
        f"SET statement_timeout TO {round(STATEMENT_TIMEOUT_S * 1000)}; "
        f"SET idle_in_transaction_session_timeout TO {round(IDLE_TIMEOUT_S * 1000)}"
    )


def _failures(is_sqlite: bool) -> tuple[type[Exception], ...]:
    """Return the exceptions of a database, except bugs."""
    if is_sqlite:
        import sqlite3

        # The others come from a damaged file: invalid text, or an impossible size.
        return OSError, sqlite3.Error, UnicodeError, OverflowError, MemoryError
    try:
        import psycopg
    except ImportError:
        return (OSError,)
    return OSError, psycopg.Error


#: SQLite's messages for a damaged file. Other errors are not the file's fault, and a file may be
#: the only record of runs whose directory was purged.
_DAMAGE_WORDS = (
    "malformed",
    "not a database",
    "corrupt",
    "no such",
    "foreign key mismatch",
    "decode",
    "unsupported file format",
    "too big",
)


def ledger_error(url: DatabaseUrl, error: Exception) -> LedgerError:
    """Return an error of the driver or the file system for people, without a password."""
    text = str(error).strip().split("\n")[0] or type(error).__name__
    if _is_of_value(error):
        return LedgerValueError(f"the ledger {url} cannot store a value: {text}")
    if type(error).__name__ == "ProgrammingError" and "token" in text:  # its message quotes the URL
        text, hint = "not a well-formed URL", "write special characters as %40 (@), %2F (/), …"
    elif "due to lock timeout" in text or "due to statement timeout" in text:
        hint = "another session holds a lock; try again later. The files have everything"
    elif re.match(r"(relation|column) .* does not exist", text):
        return damaged(url, text)
    elif url.kind == "postgresql":
        hint = "is the server up? The files have everything; the ledger catches up later"
    elif "locked" in text or "locking protocol" in text:
        hint = "another command is writing; try again"
    elif isinstance(error, (UnicodeError, OverflowError)) or any(
        word in text for word in _DAMAGE_WORDS
    ):
        return damaged(url, text)
    else:
        folder = shell_word(url.path.parent)
        hint = f"see who owns it and whether the disk is full: ls -la {folder}"
    return LedgerError(f"the ledger {url} does not work: {text}", next_action=hint)


def _is_of_value(error: Exception) -> bool:
    # Postgres: classes 22 (data exceptions) and 54 (program limits).
    state = getattr(error, "sqlstate", None) or ""
    is_refused = type(error).__module__.startswith("psycopg") and state[:2] in ("22", "54")
    # Drivers: a lone surrogate, a NUL, a number of more than 64 bits.
    by_driver = isinstance(error, UnicodeEncodeError) or any(
        words in str(error) for words in ("cannot contain NUL", "int too large to convert")
    )
    return is_refused or by_driver


def damaged(url: DatabaseUrl, why: str) -> LedgerError:
    """Return the error for a database that must be rebuilt: hpcflow never wrote its content."""
    error = LedgerError(f"the ledger {url} is damaged: {why}", next_action=how_to_rebuild(url))
    error.retryable = False
    return error


def how_to_rebuild(url: DatabaseUrl) -> str:
    if url.kind == "sqlite":
        path = shell_word(url.path)
        return f"delete it and rebuild it from the files: rm {path} && hpcflow ledger rebuild"
    return "name an empty database with HPCFLOW_LEDGER, then: hpcflow ledger rebuild"
