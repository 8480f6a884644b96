"""Record what this machine's Slurm says of a user's limits and of jobs that wait:
``python -m tests.recorded.outlook [OUT]``, as root, with the development cluster up and idle.

It crowds the cluster as tests/crowd.py says, and keeps the raw answers to hpcflow's own questions
in ``outlook/`` below tests/recorded/<version>/, with ``truth.json``: what was set and sent.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from hpcflow.schedulers.slurm import outlook
from hpcflow.schedulers.slurm.run_command import FOR_QUERIES
from hpcflow.testing.cluster import Cluster, User, poll
from hpcflow.testing.cluster.settings import cluster_directory
from tests import crowd

HERE = Path(__file__).parent


def main(out: str | None = None) -> None:
    cluster = Cluster(cluster_directory())
    ada, grace = cluster.user("hpcf-ada"), cluster.user("hpcf-grace")
    version = re.sub(r"^[a-z-]* ?", "", cluster.run("squeue", "--version").strip())
    folder = Path(out) if out else HERE / version / "outlook"
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Slurm {version} -> {folder}")
    with crowd.limits(cluster, ada):
        jobs = _crowd(cluster, ada)
        with crowd.reservations(cluster):
            jobs["through-maintenance"] = crowd.send(ada, "-Aphysics", "-N1", "-t7:00:00")
            _settled(cluster, ada, jobs)
            _write(folder, ada, grace, jobs)


def _crowd(cluster: Cluster, ada: User) -> dict[str, str]:
    running = crowd.fill(ada, "-Aphysics")
    poll(lambda: crowd.reason(cluster, running[-1]) == "None", 60, "all nodes are full")
    return {
        "running": running[0],
        "over-the-accounts-gpus": crowd.send(ada, "-Aphysics", "--gres=gpu:a100:2", "-N1", "-t60"),
        "first": crowd.send(ada, "-Abiology", "-N2", "-t3:00:00"),
        "of-the-qos": crowd.send(ada, "-Aphysics", f"--qos={crowd.QOS}", "-N1", "-t60"),
        "in-both-partitions": crowd.send(ada, "-Aphysics", "-pgpu,spot", "-N1", "-t60"),
        "held": crowd.send(ada, "-Aphysics", "-N1", "-t60", "--hold"),
        "later": crowd.send(ada, "-Aphysics", "-N1", "-t60", "--begin=now+1hour"),
        "after": crowd.send(ada, "-Aphysics", "-N1", f"--dependency=afterok:{running[0]}"),
        "array": crowd.send(ada, "-Abiology", "-N1", "-t60", "--array=0-5%2"),
    }


def _settled(cluster: Cluster, ada: User, jobs: dict[str, str]) -> None:
    """Fair shares are computed each minute, and Slurm thinks some seconds about starts."""

    def until(name: str, word: str) -> None:
        job_id = jobs[name]
        poll(
            lambda: crowd.reason(cluster, job_id) == word,
            150,
            lambda: f"{name} waits for {crowd.reason(cluster, job_id)}",
        )

    until("first", "Resources")
    until("through-maintenance", "ReqNodeNotAvail, Reserved for maintenance")
    start = ("squeue", "--start", "--noheader", "--format=%S", "--job")
    poll(lambda: cluster.run(*start, jobs["first"]).strip() != "N/A", 60, "a start is known")
    factor = (
        "sshare",
        "--noheader",
        "--users",
        ada.name,
        "--accounts=biology",
        "--format=FairShare",
    )
    poll(lambda: float(ada.run(factor).stdout.split()[-1]) > 0, 150, "fair shares are computed")


def _write(folder: Path, ada: User, grace: User, jobs: dict[str, str]) -> None:
    asked = outlook.questions(ada.name, ("biology", "physics"))
    for name, argv in asked.items():
        (folder / f"{name}.txt").write_text(ada.run(argv, env=FOR_QUERIES).stdout)
    script = ada.scratch / "test-only.sh"
    ada.run(["tee", str(script)], input="#!/bin/bash\nsleep 9\n")
    options = ("-Aphysics -t60", "-Abiology -t60 -N2 -pspot", "-Anowhere", "-N9", "-t9-0",
               f"--qos={crowd.QOS} -t600", f"--qos={crowd.QOS} -Aphysics -t60 -c2")  # fmt: skip
    answers = [_tested(ada, each, script) for each in options]
    (folder / "test_only.json").write_text(json.dumps(answers, indent=1) + "\n")
    truth = {
        "jobs": jobs,
        "uid": ada.entry.pw_uid,
        "squeue --start": ada.run(
            ["squeue", "--start", "--noheader", "--format=%i|%S"], env=FOR_QUERIES
        ).stdout,
        "sprio": ada.run(["sprio", "--noheader", "--long"], env=FOR_QUERIES).stdout,
        "others": [grace.name],
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def _tested(ada: User, options: str, script: Path) -> dict[str, Any]:
    argv = ["sbatch", "--test-only", *options.split(), str(script)]
    done = ada.run(argv, env=FOR_QUERIES, check=False)
    return {
        "options": options,
        "exit_code": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
