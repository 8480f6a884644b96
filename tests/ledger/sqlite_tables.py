"""What hpcflow/ledger/sqlite_tables.sql has: the statements for the tables of a new SQLite file.

The migrations make the same tables in a second, most of which is the import of alembic. To write
the file again after a new migration: ``make golden``.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

from hpcflow.ledger.connection import VERSION_TABLE, Connection
from hpcflow.ledger.upgrade import HEAD, SQLITE_TABLES, upgrade
from hpcflow.ledger.url import parse_url


def of_the_migrations(folder: Path) -> str:
    """Migrate a new database there; return the statements that make the same tables."""
    url = parse_url(str(folder / "ledger.sqlite"))
    upgrade(url)
    with closing(Connection(url)) as connection:
        made = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        statements = [str(statement) for (statement,) in connection.rows(made)]
    statements.append(f"INSERT INTO {VERSION_TABLE} VALUES ('{HEAD}')")
    return "".join(f"{statement};\n" for statement in statements)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        SQLITE_TABLES.write_text(of_the_migrations(Path(folder)))
