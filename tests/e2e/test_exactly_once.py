"""kill -9 of the CLI at every boundary leaves exactly one Slurm job after the next command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import ON_EACH_LEDGER, Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SLEEPER = """
name: sleeper
command: [sleep, "300"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m}
"""


@ON_EACH_LEDGER
def test_kill_9_at_every_moment_leaves_exactly_one_job(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    driver = hpcflow.write_config(
        "kill_driver.py", Path(__file__).with_name("kill_driver.py").read_text()
    )
    folder = hpcflow.home.parent
    done = hpcflow.user.run(
        ["python", str(driver), str(config), "devcluster", str(folder)],
        env=hpcflow.env,
        timeout=800,
    )
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    not_one = [r for r in rounds if len(r["jobs"]) != 1 or r["runs"] != 1]
    assert not_one == []
    assert rounds[-1]["exit_code"] == 0
    assert all(r["exit_code"] == -9 for r in rounds[:-1])
    logs = " ".join(r["log"] for r in rounds)
    assert "killed before starting a program" in logs
    assert "killed after starting a program" in logs
    assert {r["next"] for r in rounds[:-1]} == {"run", "resume"}
