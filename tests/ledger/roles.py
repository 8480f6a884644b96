"""A shared Postgres: a database of ada's, in which eve has the rights that docs/ledger.md gives."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from hpcflow.ledger.store import open_ledger
from hpcflow.testing.cluster import Postgres

_DOCS = Path(__file__).parents[2] / "docs" / "ledger.md"


def rights_of(role: str) -> str:
    """The statements of the documentation that give a user their rights."""
    (sql,) = re.findall("```sql\n(GRANT.*?)```", _DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return str(sql).replace("TO ada;", f"TO {role};")


class SharedServer:
    """Ordinary roles of a server, and databases that they share.

    Attributes:
        ada: the role that owns each database and its tables.
        eve: another user of them.
    """

    def __init__(self, server: Postgres) -> None:
        self._server, mark = server, secrets.token_hex(4)
        self.ada, self.eve = f"ada_{mark}", f"eve_{mark}"
        self._password, self._made = secrets.token_hex(8), list[str]()
        for role in (self.ada, self.eve):
            self.administer(f"CREATE ROLE {role} LOGIN PASSWORD '{self._password}'")
        self._template = self._create("template0")
        open_ledger(self.url(self._template, self.ada)).close()
        with self._connect(self._template, self.ada) as connection:
            connection.execute(rights_of(self.eve).encode())

    def database(self) -> str:
        """The name of a new database with empty tables."""
        return self._create(self._template)

    def url(self, database: str, role: str) -> str:
        """Of a ledger in it."""
        place = self._server.url(database).rpartition("@")[2]
        return f"postgresql://{role}:{self._password}@{place}"

    def as_ada(self, database: str, *statements: str) -> list[list[Any]]:
        """What the owner of the database executes, and the rows that it gives."""
        return self._execute(database, self.ada, statements)

    def as_eve(self, database: str, *statements: str) -> list[list[Any]]:
        """What another user executes, who sees everybody's rows."""
        return self._execute(database, self.eve, ["SET hpcflow.everyone = 'on'", *statements])

    def administer(self, sql: str, database: str = "postgres") -> None:
        """What a superuser executes."""
        url = self._server.url(database).replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def drop(self) -> None:
        """Delete the databases and the roles."""
        for name in reversed(self._made):
            self.administer(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for role in (self.ada, self.eve):
            self.administer(f"DROP ROLE {role}")

    def _create(self, template: str) -> str:
        name = f"shared_{secrets.token_hex(8)}"
        self.administer(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {self.ada}")
        self._made.append(name)
        return name

    def _execute(
        self, database: str, role: str, statements: tuple[str, ...] | list[str]
    ) -> list[list[Any]]:
        with self._connect(database, role) as connection:
            cursors = [connection.execute(sql.encode()) for sql in statements]
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    @contextmanager
    def _connect(self, database: str, role: str) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.url(database, role), autocommit=True) as connection:
            yield connection
