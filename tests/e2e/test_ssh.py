"""A shell inside a running job of a real cluster: on the node that was named, within the job."""

from __future__ import annotations

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SLEEPS = """
name: sleeps
command: [sleep, "600"]
launch: {framework: none, launcher: srun}
resources: {nodes: 2, time_limit: 10m}
"""


def test_a_shell_runs_on_the_node_that_was_named_and_in_the_job(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("sleeps.yaml", SLEEPS)
    run_id = hpcflow.json("run", config, "--site", "devcluster")["run_id"]

    def nodes() -> list[str]:
        attempt = hpcflow.json("show", run_id)["attempts"][-1]
        return list(attempt["nodes"]) if attempt["state"] == "running" else []

    poll(nodes, 120, lambda: hpcflow("show", run_id).stdout)
    shown = hpcflow.json("show", run_id)
    for node in shown["attempts"][-1]["nodes"]:
        typed = "echo $SLURM_JOB_ID $SLURMD_NODENAME; pwd"
        script = f"echo '{typed}' | hpcflow ssh {run_id} --node {node}"
        said = hpcflow.user.run(["bash", "-c", script], env=hpcflow.env).stdout.split()
        assert said[-3:] == [shown["job_id"], node, shown["run_dir"]]
    wrong = hpcflow("ssh", run_id, "--node", "nowhere", check=False)
    assert (wrong.returncode, "has no node 'nowhere'" in wrong.stderr) == (2, True)
    hpcflow("cancel", run_id)
    hpcflow("wait", run_id, check=False)
