"""kill -9 of a real daemon, wherever it is: no run is lost, none sent twice, each end counts once.

The cluster is a stand-in that many processes share (stand_in.py); the daemons are forks of one
process that are ``hpcflow daemon`` (kill_driver.py), which also holds the cluster's own book
against what ledger and files say in the end.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(1200)


def drive(*args: str | Path) -> Any:
    """What the driver prints at its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.requeue.kill_driver", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
        timeout=1100,
    )
    assert done.returncode == 0, f"{args}\n{done.stderr[-6000:]}"
    return json.loads(done.stdout)


@pytest.mark.parametrize("one_in", [6, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_every_boundary_the_next_one_leaves_one_job(tmp_path: Path, one_in: int) -> None:
    """Before whatever makes a fact last in a file or in the ledger, around every program; at one in
    so many of these moments, which chance decides."""
    told = drive("boundaries", tmp_path, str(one_in))
    moments = told["moments"]
    kinds = ["INSERT INTO lease", "UPDATE lease", "UPDATE run", "INSERT INTO source", "COMMIT"]
    kinds += ["before fsync", "before replace", "before starting", "after starting"]
    never = [kind for kind in kinds if not any(kind in moment for moment in moments)]
    assert never == [] or one_in > 1, "nobody was killed there"
    assert set(told["runs"].values()) == {"completed"}
    assert told["jobs"] == len(moments) + 2, "one for each that was killed, and the first and last"


@pytest.mark.parametrize("kills", [32, pytest.param(96, marks=pytest.mark.soak)])
def test_killed_many_times_while_runs_come_and_end_none_is_lost_or_doubled(
    tmp_path: Path, kills: int
) -> None:
    seed = int(os.environ.get("HPCFLOW_KILL_SEED") or random.randrange(10**6))
    print(f"HPCFLOW_KILL_SEED={seed}")
    told = drive("moments", tmp_path, str(kills), str(seed))
    assert sum(told["killed"].values()) == kills
    assert set(told["runs"].values()) == {"completed"}
    assert len(told["runs"]) == kills // 8
    for phase in ("catch_up_home", "reconcile_attempts", "submit"):
        assert told["killed"].get(phase, 0) >= kills // 32, (
            "the kills are not spread over the round"
        )
