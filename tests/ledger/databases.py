"""Fixtures: an empty database of each kind, and a ledger in it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.testing.cluster import Postgres


class Databases:
    """Databases of one kind. Tables take a while to make: they are made once, then copied."""

    def __init__(self, folder: Path, server: Postgres | None) -> None:
        self._folder = folder
        self._server = server
        self._template: str | None = None
        self._made: list[str] = []

    def empty(self) -> str:
        """The URL of a new database without tables."""
        return self._create("")

    def with_tables(self) -> str:
        """The URL of a new database that a ledger was opened in before."""
        if self._template is None:
            template = self.empty()
            open_ledger(template).close()
            self._template = template
        return self._create(self._template)

    def drop(self) -> None:
        """Delete them all."""
        for name in self._made:
            self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    def _create(self, template: str) -> str:
        name = f"ledger_{secrets.token_hex(8)}"
        if self._server is None:
            path = self._folder / f"{name}.sqlite"
            if template:
                shutil.copy(template.removeprefix("sqlite:///"), path)
            return f"sqlite:///{path}"
        source = template.rpartition("/")[2] or "template0"
        self._administer(f"CREATE DATABASE {name} TEMPLATE {source}")
        self._made.append(name)
        return self._server.url(name)

    def _administer(self, sql: str) -> None:
        assert self._server is not None
        url = self._server.url().replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.encode())


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Databases]:
    """SQLite; and a real Postgres server."""
    is_postgres = request.param == "postgresql"
    server: Postgres | None = request.getfixturevalue("postgres_server") if is_postgres else None
    databases = Databases(tmp_path_factory.mktemp("databases"), server)
    yield databases
    databases.drop()


@pytest.fixture(scope="session")
def both_databases(
    postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Databases]]:
    """SQLite and Postgres, for a test whose files take longer to make than to read."""
    folder = tmp_path_factory.mktemp("databases")
    both = [Databases(folder, server) for server in (None, postgres_server)]
    yield both
    for databases in both:
        databases.drop()


@pytest.fixture
def database(databases: Databases) -> str:
    """The URL of an empty database."""
    return databases.empty()


@pytest.fixture
def ledger_url(databases: Databases) -> str:
    """The URL of a ledger with nothing in it."""
    return databases.with_tables()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """The ledger at ``ledger_url``, open."""
    with open_ledger(ledger_url) as ledger:
        yield ledger
