"""One of the stand-in's Slurm programs: ``stand_in_program.py DATABASE NAME …``.

The scripts that :class:`hpcflow.testing.stand_in.StandIn` puts on PATH start it. It imports only
the standard library, so that an sbatch takes as long as a real one. Every call is recorded with its
process.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import sys
import time
from datetime import datetime, timezone


def main(database: str, program: str, *args: str) -> int:
    raw = sqlite3.connect(database, isolation_level=None, timeout=30)
    raw.execute("INSERT INTO request (program, sender) VALUES (?, ?)", [program, os.getppid()])
    settings = dict(raw.execute("SELECT name, value FROM setting").fetchall())
    return {"sbatch": sbatch, "squeue": squeue, "sacct": sacct, "scancel": scancel}.get(
        program, scontrol
    )(raw, settings, args)


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def sbatch(raw: sqlite3.Connection, settings: dict[str, float], args: tuple[str, ...]) -> int:
    """Create a job, with delays before and after; sometimes lose the answer."""
    with open(args[-1]) as file:  # noqa: PTH123 - no import that takes time
        name = re.findall(r"^#SBATCH --job-name=(\S+)$", file.read(), re.MULTILINE)[0]
    longest_s = settings["sbatch_s"] * (20 if random.random() < settings["slow"] else 1)
    time.sleep(random.uniform(0, longest_s))
    raw.execute("BEGIN IMMEDIATE")
    run = name.rpartition(":")[0]
    (beside,) = raw.execute(
        "SELECT count(*) FROM job WHERE ended IS NULL AND name LIKE ? || ':%'", [run]
    ).fetchone()
    job_id = raw.execute(
        "INSERT INTO job (name, state, submitted, sender, beside) VALUES (?, 'PENDING', ?, ?, ?)",
        [name, now(), os.getppid(), beside],
    ).lastrowid
    raw.execute("COMMIT")
    time.sleep(random.uniform(0, longest_s))
    if random.random() < settings["lost_answers"]:
        sys.stderr.write(
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
        )
        return 1
    print(job_id)
    return 0


def squeue(raw: sqlite3.Connection, _: dict[str, float], args: tuple[str, ...]) -> int:
    wanted = [name.partition(":") for name in args[args.index("--Format") + 1].split(",")]
    for job in jobs(raw, "is_remembered", args):
        said = fields(job)
        sys.stdout.write("".join(said.get(name, "N/A") + end for name, _, end in wanted) + "\n")
    return 0


def sacct(raw: sqlite3.Connection, _: dict[str, float], args: tuple[str, ...]) -> int:
    options = dict(each.split("=", 1) for each in args if each.startswith("--") and "=" in each)
    for job in jobs(raw, "1 = 1", args):
        said = fields(job)
        row = [said.get(name, "Unknown") for name in options["--format"].split(",")]
        sys.stdout.write(options["--delimiter"].join(row) + "\n")
    return 0


def fields(job: tuple[str, ...]) -> dict[str, str]:
    job_id, name, state, code, submitted, started, ended = job
    said = {
        **dict.fromkeys(("JobArrayID", "JobID"), str(job_id)),
        **dict.fromkeys(("Name", "JobName"), name),
        **dict.fromkeys(("exit_code", "ExitCode"), f"{code or 0}:0"),
        **dict.fromkeys(("SubmitTime", "Submit"), submitted),
        **{"State": state, "RestartCnt": "0", "Reason": "None"},
        **{"Partition": "gpu", "Account": "physics", "NodeList": "n1" if started else ""},
    }
    if started:
        said |= dict.fromkeys(("StartTime", "Start"), started)
    if ended:
        said |= dict.fromkeys(("EndTime", "End"), ended)
    return said


def jobs(raw: sqlite3.Connection, where: str, args: tuple[str, ...]) -> list[tuple[str, ...]]:
    wanted = args[args.index("--name") + 1] if "--name" in args else None
    ids = args[args.index("--jobs") + 1].split(",") if "--jobs" in args else None
    rows = raw.execute(
        "SELECT job_id, name, state, exit_code, submitted, started, ended FROM job "
        f"WHERE {where} ORDER BY job_id"
    ).fetchall()
    return [
        row
        for row in rows
        if (wanted is None or row[1] == wanted) and (ids is None or str(row[0]) in ids)
    ]


def scancel(raw: sqlite3.Connection, _: dict[str, float], args: tuple[str, ...]) -> int:
    for job_id in args:
        raw.execute(
            "UPDATE job SET state = 'CANCELLED by 1000', ended = ? "
            "WHERE job_id = ? AND ended IS NULL",
            [now(), job_id],
        )
    return 0


def scontrol(_: sqlite3.Connection, __: dict[str, float], ___: tuple[str, ...]) -> int:
    print("ClusterName             = devcluster\nMinJobAge               = 300 sec")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
