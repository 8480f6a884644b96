"""The version of a database's tables: look it up in plain SQL; create and migrate with alembic.

An empty database gets its tables when it is opened; an empty SQLite file gets those that the
migrations make from a script, because alembic takes a second to import. One with older tables is
migrated only by ``hpcflow ledger upgrade``, because older programs may still use it. Every function
raises LedgerError if the database fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpcflow.errors import LedgerError, LedgerVersionError
from hpcflow.ledger.connection import (
    BUSY_TIMEOUT_S,
    RELATIONS,
    VERSION_TABLE,
    Connection,
    connect_postgres,
    damaged,
    how_to_rebuild,
)
from hpcflow.ledger.url import DatabaseUrl
from hpcflow.resources import doc_page

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection
    from sqlalchemy import Engine

#: The newest file in migrations/versions. Numbers have four digits, so they compare as text.
HEAD: Final = "0008"
#: Statements that make an empty SQLite database what the migrations make it, version included.
#: Written by ``python -m tests.ledger.new_sqlite``.
NEW_SQLITE: Final = Path(__file__).parent / "migrations" / "new_sqlite.sql"

#: The same number in all versions of hpcflow: a process with this lock may change tables.
ADVISORY_LOCK: Final = 0x68706366

#: Postgres: another object, such as a view, depends on the changed one.
_IS_IN_USE: Final = ("2BP01", "0A000")


def version(connection: Connection) -> str | None:
    """Return the version of the tables; None for a database without hpcflow's tables."""
    exists = "SELECT to_regclass(?) IS NOT NULL"
    if connection.is_sqlite:
        exists = "SELECT count(*) FROM sqlite_master WHERE name = ?"
    ((is_there,),) = connection.rows(exists, [VERSION_TABLE])
    if not is_there:
        return None
    found = connection.rows(f"SELECT version_num FROM {VERSION_TABLE} LIMIT 1")  # noqa: S608 - a constant
    return _number(connection.url, found[0][0]) if found else None


def require_head(connection: Connection) -> None:
    """Create the tables of an empty database; refuse a database of another version.

    Raises:
        LedgerVersionError: they are older or newer; the error says what to do.
    """
    found = version(connection)
    if found is None and connection.is_sqlite:
        _fill_sqlite(connection)
        found = version(connection)
    if found is None:
        upgrade(connection.url)
        # SQLite caches the old schema; if locked out later, it would miss the tables.
        version(connection)
    elif found < HEAD:
        raise LedgerVersionError(
            f"the ledger {connection.url} has tables of version {found}; this hpcflow needs {HEAD}",
            next_action="when no older hpcflow uses it any more: hpcflow ledger upgrade",
        )
    elif found > HEAD:
        raise _too_new(connection.url, found)


def _fill_sqlite(connection: Connection) -> None:
    """Create all tables, unless the database has something already."""
    with connection.transaction(write=True):
        ((objects,),) = connection.rows("SELECT count(*) FROM sqlite_master")
        if not objects:
            for statement in NEW_SQLITE.read_text("utf-8").split(";\n"):
                connection.execute(statement)


def upgrade(url: DatabaseUrl) -> None:
    """Create or migrate the tables, wholly or not at all, one process at a time.

    Raises:
        LedgerVersionError: the database is newer than this hpcflow.
    """
    import alembic.command
    import alembic.config
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    engine = make_engine(url)
    config = alembic.config.Config()
    config.set_main_option("script_location", "hpcflow.ledger:migrations")
    try:
        with engine.begin() as connection:
            found = _lock_and_read_version(connection, url)
            if found is not None and found > HEAD:
                raise _too_new(url, found)
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")
    except SQLAlchemyError as error:
        raise _creation_error(url, getattr(error, "orig", None) or error) from None
    except (CommandError, UnicodeError) as error:  # an unknown version, an invalid name
        raise damaged(url, str(error)) from None
    finally:
        engine.dispose()


def _creation_error(url: DatabaseUrl, error: BaseException) -> LedgerError:
    reason = str(error).split("\n")[0]
    next_action = (
        "the files have everything; try again, or use another database. "
        f"If this one is a damaged ledger, {how_to_rebuild(url)}"
    )
    diagnostics = getattr(error, "diag", None)
    if diagnostics is not None and diagnostics.sqlstate in _IS_IN_USE:
        if diagnostics.message_detail:
            reason = f"{reason}: {' '.join(diagnostics.message_detail.split())[:300]}"
        next_action = "ask the owner of that object to drop it; then: hpcflow ledger upgrade"
    return LedgerError(
        f"cannot create the tables of the ledger {url}: {reason}", next_action=next_action
    )


def make_engine(url: DatabaseUrl) -> Engine:
    """Return the SQLAlchemy engine for migrations and ORM queries; it opens nothing yet."""
    from sqlalchemy import create_engine, event

    if url.kind == "postgresql":
        return create_engine("postgresql+psycopg://", creator=lambda: _connect_postgres(url))
    engine = create_engine("sqlite://", creator=lambda: Connection(url).raw)

    # Python's driver opens transactions implicitly, and not before DDL.
    @event.listens_for(engine, "begin")
    def _begin(connection: AlchemyConnection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _connect_postgres(url: DatabaseUrl) -> Any:
    raw = connect_postgres(url, url.dsn, RELATIONS)
    raw.autocommit = False
    return raw


def _lock_and_read_version(connection: AlchemyConnection, url: DatabaseUrl) -> str | None:
    """Lock out other upgrades until the transaction ends; return the current version."""
    from sqlalchemy import inspect, text

    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout TO {round(BUSY_TIMEOUT_S * 1000)}"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
    return None if found is None else _number(url, found)


def _number(url: DatabaseUrl, found: object) -> str:
    """Return ``found``, which must be a version."""
    if not isinstance(found, str) or not re.fullmatch("[0-9]{4}", found):
        raise damaged(url, f"the version of its tables is {str(found)[:40]!r}")
    return found


def _too_new(url: DatabaseUrl, found: str) -> LedgerVersionError:
    return LedgerVersionError(
        f"the ledger {url} has tables of version {found}, newer than this hpcflow supports",
        next_action=f"update it: {doc_page('installation')}",
    )
