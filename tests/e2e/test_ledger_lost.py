"""The ledger is an index: lost, it is made again; down, nothing stops."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hpcflow.testing.cluster import Postgres, poll
from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster

SMALL = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 1m}
"""

BROKEN = SMALL.replace("small", "broken").replace('"true"', '"false"')


def two_runs(hpcflow: Hpcflow) -> None:
    """One run that completes and one that fails, with their bills."""
    small = hpcflow.write_config("small.yaml", SMALL)
    broken = hpcflow.write_config("broken.yaml", BROKEN)
    assert hpcflow("run", small, "--site", "devcluster", "--wait").returncode == 0
    assert hpcflow("run", broken, "--site", "devcluster", "--wait", check=False).returncode == 1

    def are_billed() -> bool:
        total = hpcflow.json("cost", "report")["total"]
        return bool(total["attempts"] == 2 and total["unbilled"] == total["estimated"] == 0)

    poll(are_billed, 300, "accounting never spoke")


def test_a_deleted_sqlite_file_is_rebuilt_identically(hpcflow: Hpcflow) -> None:
    two_runs(hpcflow)
    before = hpcflow("ls", "--json").stdout
    for path in hpcflow.home.glob("ledger.sqlite*"):
        path.unlink()
    hpcflow("ledger", "rebuild")
    assert hpcflow("ls", "--json").stdout == before
    assert hpcflow("ledger", "check").returncode == 0


def test_postgres_holds_the_same_and_is_rebuilt_identically(
    hpcflow: Hpcflow, postgres_server: Postgres
) -> None:
    postgres = replace(
        hpcflow, env={**hpcflow.env, "HPCFLOW_LEDGER": postgres_server.create_database("e2e")}
    )
    two_runs(postgres)
    before = postgres.json("ls")["runs"]
    states = [(run["name"], run["state"]) for run in before]
    assert states == [("broken", "failed"), ("small", "completed")]
    postgres_server.drop_database("e2e")
    postgres_server.create_database("e2e")
    postgres("ledger", "rebuild")
    assert postgres.json("ls")["runs"] == before
    assert hpcflow.json("ls")["runs"] == before, (
        "SQLite, made from the same files, says something else"
    )


def test_a_ledger_that_is_down_delays_nothing_but_the_view(hpcflow: Hpcflow) -> None:
    down = replace(
        hpcflow,
        env={**hpcflow.env, "HPCFLOW_LEDGER": "postgresql://nobody@127.0.0.1:1/nothing"},
    )
    config = hpcflow.write_config("small.yaml", SMALL)
    done = down("run", config, "--site", "devcluster", "--json")
    assert done.returncode == 0
    assert "the ledger will catch up later" in done.stderr
    (listed,) = hpcflow.json("ls")["runs"]
    assert listed["name"] == "small"
    poll(
        lambda: hpcflow.json("ls")["runs"][0]["state"] == "completed",
        300,
        "the run never completed",
    )
    refused = down("resume", "small", check=False)
    assert refused.returncode == 2
    assert "is completed" in refused.stderr


def test_a_run_is_resumed_while_the_ledger_is_down(hpcflow: Hpcflow) -> None:
    down = replace(
        hpcflow,
        env={**hpcflow.env, "HPCFLOW_LEDGER": "postgresql://nobody@127.0.0.1:1/nothing"},
    )
    config = hpcflow.write_config("broken.yaml", BROKEN)
    first = json.loads(down("run", config, "--site", "devcluster", "--json").stdout)

    def sent_again() -> bool:
        return down("resume", "broken", check=False).returncode == 0

    poll(sent_again, 300, f"the end of job {first['job_id']} was never seen")
    (listed,) = hpcflow.json("ls")["runs"]
    assert listed["number_of_attempts"] == 2


def test_waiting_goes_on_while_the_ledger_is_down(hpcflow: Hpcflow) -> None:
    down = replace(
        hpcflow,
        env={**hpcflow.env, "HPCFLOW_LEDGER": "postgresql://nobody@127.0.0.1:1/nothing"},
    )
    config = hpcflow.write_config("small.yaml", SMALL)
    done = down("run", config, "--site", "devcluster", "--wait", "--json")
    assert json.loads(done.stdout)["state"] == "completed"
