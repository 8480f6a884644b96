"""Fixtures: a ledger that ada and eve share, and a run of ada's in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import pytest

from hpcflow.ledger.codec import columns
from hpcflow.ledger.lease import Lease, acquire
from hpcflow.ledger.rows import ROWS
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.state import Cause
from hpcflow.projection import catch_up
from hpcflow.storage.layout import RunDir
from hpcflow.testing.cluster import Postgres
from tests.ledger import lines as say
from tests.ledger.roles import SharedServer
from tests.projection.files import grow, new_run

NOW: Final = datetime(2026, 3, 1, tzinfo=timezone.utc)


def copied(table: str, count: int = 1, **values: str) -> str:
    """Eve copies the rows of a table; they become hers. Values are SQL."""
    names = columns(Lease if table == "lease" else ROWS[table])
    said = dict.fromkeys(names) | values
    return (
        f"INSERT INTO {table} ({', '.join(said)}) "
        f"SELECT {', '.join(value or name for name, value in said.items())} "
        f"FROM {table}, generate_series(1, {count}) AS number"
    )


@pytest.fixture(scope="module")
def server(postgres_server: Postgres) -> Iterator[SharedServer]:
    server = SharedServer(postgres_server)
    yield server
    server.drop()


@pytest.fixture
def database(server: SharedServer) -> str:
    return server.database()


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def ada(server: SharedServer, database: str, warnings: list[str]) -> Iterator[Ledger]:
    """The ledger as the role ada sees it."""
    with open_ledger(server.url(database, server.ada), warnings.append) as ledger:
        yield ledger


@pytest.fixture
def eve(server: SharedServer, database: str) -> Iterator[Ledger]:
    """The ledger as the role eve sees it."""
    with open_ledger(server.url(database, server.eve)) as ledger:
        yield ledger


@pytest.fixture
def run_dir(tmp_path: Path, ada: Ledger) -> RunDir:
    """A run of ada's that was preempted once and runs again."""
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 5), say.intended(2, 6), say.submitted(2, 6))
    for number in (1, 2):
        events = run_dir.attempt(number).events
        grow(events, say.started(number, 2), say.progress(5, 3, loss=0.5), say.checkpoint(5, 4))
    catch_up(ada, [run_dir])
    acquire(ada, "daemon", holder="ada", host="h", pid=1, ttl_s=60, now=NOW)
    return run_dir
