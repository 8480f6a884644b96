"""``python -m tests.ledger.new_sqlite``: write the script that fills a new SQLite ledger again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hpcflow.ledger.connection import VERSION_TABLE, Connection
from hpcflow.ledger.upgrade import HEAD, NEW_SQLITE, upgrade
from hpcflow.ledger.url import parse_url


def objects(connection: Connection) -> list[tuple[str, str, str, str]]:
    """Type, name, table and statement of each object, in the order in which they were made."""
    # The others come with a table.
    which = "WHERE sql IS NOT NULL ORDER BY rowid"
    return connection.rows(f"SELECT type, name, tbl_name, sql FROM sqlite_master {which}")


def made_by_migrations() -> list[tuple[str, str, str, str]]:
    """The objects of a database that all migrations have made, one after the other."""
    with TemporaryDirectory() as folder:
        url = parse_url(str(Path(folder) / "ledger.sqlite"))
        upgrade(url)
        with closing(Connection(url)) as connection:
            return objects(connection)


def script() -> str:
    """The statements that make the same at once."""
    statements = [sql for _, _, _, sql in made_by_migrations()]
    statements.append(f"INSERT INTO {VERSION_TABLE} VALUES ('{HEAD}')")
    assert not any(";" in statement for statement in statements)
    return ";\n".join(statements) + "\n"


if __name__ == "__main__":
    NEW_SQLITE.write_text(script())
