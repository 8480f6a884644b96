"""``hpcflow ls`` in a shared ledger: rows of another role hide no run of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow.cli.session import Session
from hpcflow.errors import SiteError
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

    def listed(*args: str) -> str:
        command = [sys.executable, "-m", "hpcflow.cli.main", "ls", *args]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert listed().count(run_dir.path.name) == 1
    listing = json.loads(listed("--limit", "1", "--json"))
    assert len(listing["runs"]) == 1, "no more than were asked for"


def test_show_tells_of_eves_run_and_of_no_attempt_that_she_writes_for_adas(
    server: SharedServer,
    database: str,
    run_dir: RunDir,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home.chmod(0o700)
    monkeypatch.setenv("HPCFLOW_LEDGER", server.url(database, server.ada))
    theirs = "theirs-20260101-abcdefgh"
    new_id = f"'{theirs}'"
    run = copied("run", run_id=new_id, name="'theirs'", user_name="'eve'")
    attempt, checkpoint = (copied(table, run_id=new_id) for table in ("attempt", "checkpoint"))
    server.as_eve(database, run, attempt, checkpoint)
    of_ada = f" WHERE run_id <> '{theirs}'"
    server.as_eve(database, copied("run", name="'spoofed'") + of_ada)
    server.as_eve(database, copied("attempt", attempt="attempt + 90") + of_ada)

    def show(text: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hpcflow.cli.main", "show", text]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for text in (theirs, "theirs"):
        shown = show(text)
        assert shown.stdout.startswith(f"{theirs}  running"), shown.stderr
        assert "eve (from the ledger: no run of this HPCFLOW_HOME)" in shown.stdout
        assert " 101 " in shown.stdout, "the job of her attempt"
    ours = show(run_dir.path.name)
    assert "91" not in ours.stdout.split("ATTEMPT")[1], ours.stdout + ours.stderr
    assert show("spoofed").returncode == 2


@pytest.mark.usefixtures("run_dir")
def test_whose_site_files_are_named_is_asked_once(
    server: SharedServer, database: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.chmod(0o700)
    monkeypatch.setenv("HPCFLOW_LEDGER", server.url(database, server.ada))
    session = Session()
    for number in range(3):
        with pytest.raises(SiteError, match="only runs of other users name the site file"):
            session.site_in_report(f"/x/{number}.yaml")
        server.as_ada(database, "DROP TABLE IF EXISTS run CASCADE")
    session.ledger.close()


@pytest.mark.parametrize("name", ["'a' || number", "'/a/' || number || '.yaml'"])
def test_however_many_sites_eve_names_the_warning_is_short_and_names_adas_first(
    server: SharedServer,
    database: str,
    run_dir: RunDir,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    home.chmod(0o700)
    monkeypatch.setenv("HPCFLOW_LEDGER", server.url(database, server.ada))
    server.as_ada(database, f"UPDATE run SET site = 'mine' WHERE run_id = '{run_dir.path.name}'")
    server.as_eve(database, copied("run", 40, run_id="'eve' || number", site=name))
    command = [sys.executable, "-m", "hpcflow.cli.main", "cost", "report"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "on mine, " in said
    assert "and 36 more is unknown" in said
    assert len(said) < 1000
