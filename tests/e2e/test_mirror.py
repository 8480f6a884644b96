"""The mirror on a real cluster: beside the daemon, and as a job where the site has a partition."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcflow.resources import resource_dir
from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow

PROGRAM = "echo $HPCFLOW_MIRROR > $HPCFLOW_RUN_DIR/artifacts/said"
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]


@pytest.mark.parametrize("partition", [None, "gpu"])
def test_a_run_is_mirrored_without_anybody_asking(hpcflow: Hpcflow, partition: str | None) -> None:
    store = hpcflow.home.parent / "store"
    sites = hpcflow.home / "sites"
    hpcflow.user.run(["mkdir", "-m", "700", "-p", str(hpcflow.home), str(sites)])
    text = (resource_dir("site_configs") / "devcluster.yaml").read_text()
    text += f"mirror: {{url: {store}{f', partition: {partition}' if partition else ''}}}\n"
    hpcflow.user.run(["tee", str(sites / "devcluster.yaml")], input=text)
    config = hpcflow.write_config("small.yaml", f"name: small\ncommand: [sh, -c, '{PROGRAM}']\n")
    daemon = hpcflow.user.popen(
        ["hpcflow", "daemon", "--interval", "1"],
        env=hpcflow.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        run_id = hpcflow.json("run", config, "--site", "devcluster", "--wait")["run_id"]
        said = store / run_id / "artifacts" / "said"
        # Nobody has to be quick: a pass is made once a minute.
        poll(lambda: is_there(hpcflow, said), 300, lambda: queue(hpcflow))
        assert hpcflow.user.run(["cat", str(said)]).stdout == "1\n"
        assert ("hpcflow-mirror" in queue(hpcflow)) == (partition is not None)
    finally:
        daemon.terminate()
        daemon.communicate(timeout=120)
        hpcflow.user.run(["scancel", "--me"])


def is_there(hpcflow: Hpcflow, path: Path) -> bool:
    return hpcflow.user.run(["test", "-e", str(path)], check=False).returncode == 0


def queue(hpcflow: Hpcflow) -> str:
    return str(hpcflow.user.run(["squeue", "--me", "-h", "-o", "%i %T %P %j"]).stdout)
