"""Connect to SQLite or Postgres: statements, transactions, and errors for people.

The statements are written once, with ``?`` for parameters, in the SQL that both databases share.
Parameters are text, numbers, booleans and None; ``codec.py`` knows what they mean. Postgres also
takes a list of texts. Importing this imports no database driver.
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
#: How long a statement waits for others who hold what it needs; each of ours takes milliseconds.
BUSY_TIMEOUT_S = 10.0
#: A rebuild writes 200 runs at a time, in seconds; Postgres ends what takes longer than this.
STATEMENT_TIMEOUT_S = 60.0
#: A process that is stopped in the midst of writing, or whose machine is gone, keeps its rows from
#: everybody else: no longer than this. Between two statements of ours there are milliseconds.
IDLE_TIMEOUT_S = 30.0
#: For a server that does not even acknowledge what it is sent: its machine, or the way, is gone.
ACKNOWLEDGE_TIMEOUT_S = 20.0
#: What libpq is told beside the URL, so that no server can make a command wait for ever.
POSTGRES_OPTIONS: Final[dict[str, Any]] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "tcp_user_timeout": round(ACKNOWLEDGE_TIMEOUT_S * 1000),
    # Without these it takes hours to notice that the server's machine is gone.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
#: For a server whose machine answers, and whose process or disk hangs. Any other ends the statement
#: by its own limit before.
ANSWER_TIMEOUT_S = STATEMENT_TIMEOUT_S + 15.0


VERSION_TABLE: Final = "hpcflow_version"
#: The tables and views of the ledger.
RELATIONS: Final = (
    *("run", "attempt", "checkpoint", "mirrored", "source", "lease"),
    *("mirror_lag", VERSION_TABLE),
)


class Cursor(Protocol):
    """What this package needs of a DB-API cursor."""

    rowcount: int

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection:
    """One open database; not to be shared between threads."""

    def __init__(self, url: DatabaseUrl) -> None:
        """Open the database.

        Raises:
            LedgerError: it cannot be opened, or does not answer within seconds.
        """
        self.url = url
        self.is_sqlite = url.kind == "sqlite"
        self.is_broken = False
        #: Run id -> why rows of it were left out of what was read.
        self.left_out: dict[str, str] = {}
        self._reads_any_time = False
        self._raw: Any
        with self._errors():
            self._raw = _open_sqlite(url) if self.is_sqlite else _open_postgres(url)
        self._file = _file_id(url) if self.is_sqlite else None

    @property
    def is_lost(self) -> bool:
        """Whether it broke, or leads to a file that is not the ledger any more."""
        return self.is_broken or (self.is_sqlite and _file_id(self.url) != self._file)

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> Cursor:
        """Run one statement.

        Raises:
            LedgerError: the database failed.
        """
        with self._errors():
            cursor: Cursor = self._raw.execute(self._native(sql), tuple(parameters))
            return cursor

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> int:
        """Run one statement for every row; how many rows it changed in all.

        Raises:
            LedgerError: the database failed.
        """
        with self._errors():
            cursor = self._raw.cursor()
            cursor.executemany(self._native(sql), list(rows))
            return int(cursor.rowcount)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """All rows that a statement gives.

        Raises:
            LedgerError: the database failed.
        """
        found: list[Any]
        with self._errors():
            try:
                found = self._raw.execute(self._native(sql), tuple(parameters)).fetchall()
            except Exception as error:
                if self.is_sqlite or self._reads_any_time or _STRANGE_TIME not in str(error):
                    raise
                self._reads_any_time = True
                _read_any_time(self._raw)
                found = self._raw.execute(self._native(sql), tuple(parameters)).fetchall()
            return found

    @contextmanager
    def transaction(self, *, write: bool, everyone: bool = False) -> Iterator[None]:
        """All statements in the block, or none; what is read in it belongs together.

        Args:
            everyone: also read the rows that other Postgres roles have written.

        Raises:
            LedgerError: the database failed.
        """
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if write:
            # At once, so that SQLite need not turn a reader into a writer, which can fail.
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
        """Give the connection back."""
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
        """Whatever the driver or the file system raises, as a LedgerError without a password."""
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
        # The write-ahead log lives in memory that only the processes of one machine share. It is
        # an index: what a power failure takes from it is read again from the files.
        _set_journal_mode(raw, "DELETE" if is_shared(path) else "WAL")
        raw.execute("PRAGMA synchronous = NORMAL")
        # 32 MB, where 4 would mean some fsyncs in the midst of every round over many runs.
        raw.execute("PRAGMA wal_autocheckpoint = 8000")
        raw.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        raw.close()
        raise
    return raw


def _set_journal_mode(raw: sqlite3.Connection, mode: str) -> None:
    """SQLite does not wait, as it does otherwise, when two processes change the mode at once."""
    import sqlite3

    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            raw.execute(f"PRAGMA journal_mode = {mode}")
        except sqlite3.OperationalError as error:  # noqa: PERF203 - trying again is the point
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
    """The driver's connection, with autocommit, to a database in which nothing of another role is
    executed as this user.

    Args:
        dsn: what libpq connects to, with the schemas that are used.
        tables: the names of the tables and views that are used.

    Raises:
        LedgerError: another role has put such a thing there, or the driver is not installed.
        Exception: whatever the driver raises.
    """
    try:
        driver = _impatient()
    except ImportError:
        missing = LedgerError(
            "this installation of hpcflow cannot speak to Postgres",
            next_action="install its driver: " + install_extra("postgres"),
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


def _impatient() -> Any:
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
            ready = yield wanted  # the driver goes on every 0.1 s, even if nothing came
            if not ready and time.monotonic() > end:
                raise psycopg.OperationalError("the server does not answer")

    class Impatient(psycopg.Connection[Any]):
        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            return super().wait(limited(gen), *args, **options)

    return Impatient


#: What the driver says of a year that Postgres has and Python has not, and of infinity.
_STRANGE_TIME: Final = "timestamp too"


def _read_any_time(raw: Any) -> None:
    """Let times that Python has not come as texts: one of them would keep all rows from being read.

    Only once there is one, for this takes longer than what the driver has.
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
    """Set what holds for the whole session."""
    raw.execute(
        "SET timezone TO 'UTC'; "  # early times cannot be read in zones west of it
        "SET hpcflow.everyone TO ''; "  # the role or the database may set it
        # Rows are asked for by their keys, and are in memory: with the usual guess of what a seek
        # takes the planner would rather read a whole table for each batch.
        "SET random_page_cost TO 1.1; "
        f"SET lock_timeout TO {round(BUSY_TIMEOUT_S * 1000)}; "
        f"SET statement_timeout TO {round(STATEMENT_TIMEOUT_S * 1000)}; "
        f"SET idle_in_transaction_session_timeout TO {round(IDLE_TIMEOUT_S * 1000)}"
    )


def _failures(is_sqlite: bool) -> tuple[type[Exception], ...]:
    """What using a database raises, beside bugs."""
    if is_sqlite:
        import sqlite3

        # The others come of a damaged file: a name that is no text, a size that is no number.
        return OSError, sqlite3.Error, UnicodeError, OverflowError, MemoryError
    try:
        import psycopg
    except ImportError:
        return (OSError,)
    return OSError, psycopg.Error


#: What SQLite says of a file that holds what no SQLite and no hpcflow wrote. Of anything else it is
#: not the file's fault: it may be the only one that knows runs whose directory was purged.
_OF_DAMAGE = (
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
    """What a driver or the file system raised, for people and without a password."""
    text = str(error).strip().split("\n")[0] or type(error).__name__
    if _is_of_value(error):
        return LedgerValueError(f"the ledger {url} does not store a value: {text}")
    if type(error).__name__ == "ProgrammingError" and "token" in text:  # quotes parts of the URL
        text, hint = "not a well-formed URL", "write special characters as %40 (@), %2F (/), …"
    elif "due to lock timeout" in text or "due to statement timeout" in text:
        hint = "another session holds a lock; try again later. The files have everything"
    elif re.match(r"(relation|column) .* does not exist", text):  # somebody has taken it away
        return damaged(url, text)
    elif url.kind == "postgresql":
        hint = "is the server up? The files have everything; the ledger catches up later"
    elif "locked" in text or "locking protocol" in text:
        hint = "another command is writing; send this one again"
    elif isinstance(error, (UnicodeError, OverflowError)) or any(
        word in text for word in _OF_DAMAGE
    ):
        return damaged(url, text)
    else:
        folder = shell_word(url.path.parent)
        hint = f"see who owns it and whether the disk is full: ls -la {folder}"
    return LedgerError(f"the ledger {url} does not work: {text}", next_action=hint)


def _is_of_value(error: Exception) -> bool:
    """Whether the database refuses a value that it was given."""
    # Postgres: of its classes, data exceptions (22) and limits of the program (54).
    state = getattr(error, "sqlstate", None) or ""
    is_refused = type(error).__module__.startswith("psycopg") and state[:2] in ("22", "54")
    # The drivers themselves: a lone surrogate, a NUL, a number of more than 64 bits.
    by_driver = isinstance(error, UnicodeEncodeError) or any(
        words in str(error) for words in ("cannot contain NUL", "int too large to convert")
    )
    return is_refused or by_driver


def damaged(url: DatabaseUrl, why: str) -> LedgerError:
    """The error for a database that holds what hpcflow never wrote: it must be rebuilt."""
    error = LedgerError(f"the ledger {url} is damaged: {why}", next_action=how_to_rebuild(url))
    error.retryable = False
    return error


def how_to_rebuild(url: DatabaseUrl) -> str:
    """What to type when what the database holds is worth nothing."""
    if url.kind == "sqlite":
        path = shell_word(url.path)
        return f"delete it and rebuild it from the files: rm {path} && hpcflow ledger rebuild"
    return "name an empty database with HPCFLOW_LEDGER, then: hpcflow ledger rebuild"
