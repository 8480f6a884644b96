"""Fixtures: an empty database of each kind, and a ledger in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.testing.cluster import Postgres


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.sqlite"
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    name = f"ledger_{secrets.token_hex(8)}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    """An open ledger in an empty database."""
    with open_ledger(database) as ledger:
        yield ledger
