"""Submitting a small job, whole process, against torchx, submitit and bare sbatch.

Runs on the real development cluster as one of its ordinary users. The peers live in a virtual
environment of their own in the cluster's folder, made at the first call.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from hpcflow.testing.cluster import Cluster, User
from tests.benchmarks.timing import Row, in_turn, ratio, wall

_ROUNDS = 7
_RUNS = 1000

_CONFIG = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 1m}
"""

_SUBMITIT = """
import submitit
executor = submitit.AutoExecutor(folder="submitit-logs", cluster="slurm")
executor.update_parameters(timeout_min=1, slurm_account="physics")
job = executor.submit(print, "small")
print(job.job_id)
"""

#: Without a job folder, which would make it copy the working directory.
_TORCHX = ("run", "-s", "slurm", "utils.echo", "--msg", "small")

_API = """
import sys, time
import hpcflow
config, runs = sys.argv[1], int(sys.argv[2])
hpcflow.submit(config, site="devcluster")
began = time.perf_counter()
for _ in range(runs):
    hpcflow.submit(config, site="devcluster")
print(runs / (time.perf_counter() - began))
"""


def rows(cluster: Cluster) -> list[Row]:
    """Measure single submissions and a thousand in one process."""
    tree = Path(__file__).resolve().parents[2]
    software = cluster.software(tree, Path(sys.executable))
    user = cluster.user("hpcf-ada")
    peers = _peers(cluster.directory / "software" / "peers")
    folder = user.scratch / f"bench-{uuid.uuid4().hex[:8]}"
    user.run(["mkdir", str(folder)])
    for name, text in {
        "config.yaml": _CONFIG,
        "five_lines.py": _SUBMITIT,
        "api.py": _API,
        "job.sh": "#!/bin/bash\ntrue\n",
    }.items():
        (folder / name).write_text(text)
    # What is submitted is not started: here the nodes are the very machine that submits.
    _set_partition(cluster, "down")
    try:
        return [*_single(user, peers, folder), _thousand(user, software.bin, folder)]
    finally:
        user.run(["scancel", "--me"], check=False)
        _set_partition(cluster, "up")


def _set_partition(cluster: Cluster, state: str) -> None:
    cluster.run("scontrol", "update", "partitionname=gpu", f"state={state}")


def _single(user: User, peers: Path, folder: Path) -> list[Row]:
    env = {"HPCFLOW_HOME": str(folder / "home")}

    def start(*argv: str) -> Callable[[], subprocess.Popen[str]]:
        null = subprocess.DEVNULL
        return lambda: user.popen(list(argv), cwd=folder, env=env, stdout=null, stderr=null)

    times = in_turn(
        {
            "hpcflow": start("hpcflow", "run", "config.yaml", "--site", "devcluster"),
            "torchx": start(str(peers / "torchx"), *_TORCHX),
            "submitit": start(str(peers / "python"), "five_lines.py"),
            "sbatch": start("sbatch", "job.sh"),
        },
        _ROUNDS,
    )
    to_torchx = ratio(times["hpcflow"], times["torchx"])
    to_submitit = ratio(times["hpcflow"], times["submitit"])
    milliseconds = {name: f"{wall(usages) * 1000:.0f} ms" for name, usages in times.items()}
    return [
        Row(
            "`hpcflow run` of a small job, whole process",
            f"{to_torchx:.2f} × `torchx run -s slurm` "
            f"({milliseconds['hpcflow']}, {milliseconds['torchx']})",
            "at most 1.0 ×",
            to_torchx <= 1.0,
        ),
        Row(
            "the same, against a submitit script of five lines",
            f"{to_submitit:.2f} × ({milliseconds['submitit']}; bare sbatch "
            f"{milliseconds['sbatch']})",
            "aim for 2 ×",
            to_submitit <= 2.0,
            is_aim=True,
        ),
    ]


def _thousand(user: User, binaries: Path, folder: Path) -> Row:
    done = user.run(
        [str(binaries / "python"), "api.py", "config.yaml", str(_RUNS)],
        cwd=folder,
        env={"HPCFLOW_HOME": str(folder / "home-api")},
        timeout=600,
    )
    rate = float(done.stdout)
    return Row(
        f"{_RUNS} runs through the Python API, one process",
        f"{rate:.0f} a second",
        "at least 50 a second",
        rate >= 50,
    )


def _peers(folder: Path) -> Path:
    """The bin folder of the peers' environment."""
    if not (folder / "bin" / "torchx").exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet"]
        subprocess.run([*pip, "torchx", "submitit"], check=True)
    return folder / "bin"
