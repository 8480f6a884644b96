"""What a job on two nodes uses is seen on both, and what it asked for too much is told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import Hpcflow
from tests.runtime.sampling.libnvidia import compiled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: An unmodified program: the second node holds 300 MiB, the first a third of that. Each uses a core
#: for four seconds.
PROGRAM = """\
import os, sys, time
mib = (100, 300)[int(os.environ["RANK"])]
held, end = bytearray(mib << 20), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    if time.process_time() > 4:
        time.sleep(0.1)
"""
CONFIG = """
name: {name}
command: [python3, {program}, "{seconds}"]
launch: {{framework: none, launcher: srun}}
resources:
  {{partition: gpu, nodes: 2, gpus_per_node: 4, tasks_per_node: 1, cpus_per_task: 8, mem: 4G,
    time_limit: 2h}}
environment: {{variables: {{LD_LIBRARY_PATH: {libraries}}}}}
retry: {{failures: 0}}
"""


def send(hpcflow: Hpcflow, name: str, libraries: Path, seconds: int) -> Any:
    program = hpcflow.write_config("holds.py", PROGRAM)
    text = CONFIG.format(name=name, program=program, seconds=seconds, libraries=libraries)
    config = hpcflow.write_config(f"{name}.yaml", text)
    return hpcflow.json("run", config, "--site", "devcluster")


def samplers(user: User, run: Any) -> list[str]:
    """Processes of this user that look at this run."""
    script = "grep -lzxs hpcflow.runtime.sampling /proc/[0-9]*/cmdline"
    found = user.run(["sh", "-c", script], check=False).stdout.split()
    return [
        path
        for path in found
        if user.run(
            ["grep", "-qzs", run["run_id"], path.replace("cmdline", "environ")], check=False
        ).returncode
        == 0
    ]


def test_a_run_of_two_nodes_that_asks_for_too_much_is_told_what_it_needs(
    hpcflow: Hpcflow,
) -> None:
    libraries = hpcflow.home.parent / "libraries"
    libraries.mkdir()
    has_gpus = shutil.which("cc") is not None
    if has_gpus:
        compiled(libraries)
        libraries.chmod(0o755)

    held = send(hpcflow, "cancelled", libraries, 600)
    poll(lambda: len(samplers(hpcflow.user, held)) == 2, 300, "one sampler on each node")
    hpcflow("cancel", held["run_id"])
    poll(lambda: not samplers(hpcflow.user, held), 300, "a sampler has outlived its job")

    run = send(hpcflow, "holds", libraries, 13)
    assert hpcflow("wait", run["run_id"]).returncode == 0
    poll(lambda: not samplers(hpcflow.user, run), 300, "a sampler has outlived its job")
    found = hpcflow.json("efficiency", run["run_id"])
    (attempt,) = found["attempts"]
    seen = attempt["measured"]
    assert (seen["nodes"], seen["mem_by"]) == (2, "processes")
    assert 300 <= seen["mem_peak_mb"] <= 345
    assert 0.05 < seen["cores_p95"] < 1.3, "of a node, and not of the machine that all share"
    assert (seen["cpus"], seen["gpus_per_node"], seen["mem_mb"]) == (8, 4, 4096)
    if has_gpus:
        assert seen["gpus"] == 6, "of each node's four, one has fallen off the bus"
        assert seen["gpu_mem_peak_mb"] == 30_000
        assert seen["gpu_busy_mean"] == pytest.approx(97 / 2)
    advice = {each["key"]: each["value"] for each in found["advice"]}
    assert (advice["resources.mem"], advice["resources.time_limit"]) == ("512M", "5m")
    assert advice["resources.cpus_per_task"] in ("1", "2")
    assert set(advice) == {"resources.mem", "resources.time_limit", "resources.cpus_per_task"}
    (line,) = hpcflow.json("efficiency", "--by", "user")["lines"]
    assert (line["user"], line["measured"]) == (hpcflow.user.name, 1)
    assert hpcflow("ledger", "check").returncode == 0

    # With what is advised it is still enough.
    changes = [word for key, value in advice.items() for word in ("--set", f"{key}={value}")]
    program = hpcflow.home.parent / "holds.py"
    text = CONFIG.format(name="less", program=program, seconds=1, libraries=libraries)
    config = hpcflow.write_config("less.yaml", text)
    less = hpcflow.json("run", config, "--site", "devcluster", *changes)
    assert hpcflow("wait", less["run_id"]).returncode == 0
