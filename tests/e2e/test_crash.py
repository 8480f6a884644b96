"""A program that crashes at its start, under torchrun and srun on real Slurm."""

from __future__ import annotations

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONFIG = """\
name: broken
script: train.py
launch: {{launcher: {launcher}}}
resources: {{nodes: 2, time_limit: 5m}}
retry: {{backoff: 1s}}
"""
PROGRAM = """\
import os, time
print("this is", os.environ["RANK"], flush=True)
if os.environ["RANK"] == "1":
    import no_such_module
time.sleep(200)
"""
#: The first node that executes it is the broken one.
ONE_BROKEN_NODE = """\
import os
from pathlib import Path
node, broken = os.environ["SLURMD_NODENAME"], Path(os.environ["HPCFLOW_RUN_DIR"], "broken")
if not broken.exists():
    broken.write_text(node)
if broken.read_text() == node:
    raise RuntimeError("No CUDA GPUs are available")
"""
ERROR = "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("srun", marks=pytest.mark.soak)])
def test_it_is_not_sent_a_third_time_and_the_rank_that_failed_is_shown(
    hpcflow: Hpcflow, launcher: str
) -> None:
    script = hpcflow.write_config("train.py", PROGRAM)
    config = hpcflow.write_config("broken.yaml", CONFIG.format(launcher=launcher))
    said = hpcflow("run", config, "--site", "devcluster", "--wait", check=False).stdout
    assert ERROR in said

    def sent_again() -> bool:
        return "go_on" in hpcflow("daemon", "--once").stdout

    poll(sent_again, 120, "it is not sent again")
    hpcflow("wait", "broken", check=False)
    assert "stop  (same_crash: attempts 1 and 2 failed" in hpcflow("daemon", "--once").stdout
    seen = hpcflow.json("show", "broken")
    assert (seen["state"], seen["next_action"], seen["next_rule"]) == (
        "failed",
        "stop",
        "same_crash",
    )
    assert len(seen["attempts"]) == 2
    failure = seen["failure"]
    assert (failure["error"], failure["at"]) == (ERROR, f"{script}:4")
    assert failure["rank"] == 1
    assert failure["lines"][-1] == ERROR, "without what the launchers write"
    assert f"  error          rank 1: {ERROR}\n" in hpcflow("show", "broken").stdout
    assert hpcflow("logs", "broken", "--rank", "0").stdout.startswith("this is 0\n")
    of_rank_1 = hpcflow("logs", "broken", "--rank", "1").stdout.splitlines()
    assert (of_rank_1[0], of_rank_1[-1]) == ("this is 1", ERROR)


def test_a_program_that_crashes_on_one_broken_node_completes_on_another(hpcflow: Hpcflow) -> None:
    hpcflow.write_config("train.py", ONE_BROKEN_NODE)
    one_node = CONFIG.format(launcher="none").replace("nodes: 2", "nodes: 1, gpus_per_node: 0")
    config = hpcflow.write_config("broken.yaml", one_node)
    said = hpcflow("run", config, "--site", "devcluster", "--wait", check=False).stdout
    assert "No CUDA GPUs are available" in said

    def is_completed() -> bool:
        hpcflow("daemon", "--once")
        return bool(hpcflow.json("show", "broken")["state"] == "completed")

    poll(is_completed, 300, lambda: hpcflow("show", "broken").stdout)
    first, second = hpcflow.json("show", "broken")["attempts"]
    assert first["nodes"] != second["nodes"]


def test_what_slurm_would_refuse_is_refused_by_a_dry_run(hpcflow: Hpcflow) -> None:
    hpcflow.write_config("train.py", "print('trained')\n")
    config = hpcflow.write_config("qos.yaml", CONFIG.format(launcher="srun"))
    config.write_text(config.read_text().replace("nodes: 2", "qos: no_such_qos"))
    said = hpcflow("run", config, "--site", "devcluster", "--dry-run", check=False)
    assert said.returncode == 2
    assert f"{config}:4, resources.qos" in said.stderr
    good = hpcflow(
        "run", config, "--site", "devcluster", "--set", "resources.qos=null", "--dry-run"
    )
    assert good.stderr == ""
