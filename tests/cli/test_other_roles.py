"""``hpcflow ls`` in a shared ledger: rows of another role hide no run of one's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow.storage.layout import RunDir
from tests.ledger.roles import SharedServer
from tests.ledger.shared import ada, copied, database, run_dir, server, warnings

__all__ = ["ada", "database", "run_dir", "server", "warnings"]

pytestmark = pytest.mark.postgres

ATTACKS = {
    "damaged": {"tags": "'7'::json", "created_at": "'2040-01-01'"},
    "in the future": {"created_at": "'2040-01-01'"},
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_however_many_rows_eve_writes_adas_newest_runs_are_listed(
    server: SharedServer,
    database: str,
    run_dir: RunDir,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: str,
) -> None:
    home.chmod(0o700)
    monkeypatch.setenv("HPCFLOW_LEDGER", server.url(database, server.ada))
    server.as_eve(database, copied("run", 40, run_id="'eve' || number", **ATTACKS[attack]))
    listed = subprocess.run(
        [sys.executable, "-m", "hpcflow.cli.main", "ls"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.count(run_dir.path.name) == 1
