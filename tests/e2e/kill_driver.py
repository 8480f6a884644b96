"""Kills ``hpcflow run`` at each of its steps that outlast the process, then types the next command.

Run as the user whose cluster it is: ``python kill_driver.py CONFIG SITE FOLDER ONE_IN``. Every
round has a home of its own. Before and after whatever makes a fact last (fsync, rename, symbolic
link) and each child process, the process may be killed; a round kills it at one of these moments,
the next one ``ONE_IN`` moments later. Prints one JSON object a round.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcflow.cli.main import main
from hpcflow.model.ids import parse_job_name
from hpcflow.storage.layout import Home
from hpcflow.storage.runs import list_runs

_moments = 0
_name = ""


def killed_at(number: int) -> None:
    """From now on this process is killed at its ``number``-th moment."""

    def moment(what: str) -> None:
        global _moments, _name
        _moments += 1
        if _moments == number:
            os.write(2, f"killed {what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def around(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            moment(f"before {name}")
            result = function(*args, **options)
            moment(f"after {name}")
            return result

        return wrapped

    for name in ("fsync", "replace", "rename", "symlink"):
        setattr(os, name, around(getattr(os, name), name))
    start = subprocess.Popen.__init__
    subprocess.Popen.__init__ = around(start, "starting a program")  # type: ignore[method-assign]


def in_child(function: Callable[[], int], log: Path) -> int:
    """Run ``function`` in a fork; its exit code, or minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 1
        try:
            code = function()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def jobs() -> set[str]:
    """Ids of all jobs of this user that Slurm remembers and that hpcflow named."""
    shown = subprocess.run(
        ["squeue", "--me", "--states=all", "--noheader", "--format=%i %j"],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = (line.split(" ", 1) for line in shown.stdout.splitlines())
    return {job_id for job_id, name in lines if parse_job_name(name)}


def one_round(number: int, config: str, site: str, folder: Path) -> dict[str, Any]:
    """Kill at moment ``number``, type the next command, and count the jobs."""
    home = folder / f"home-{number}"
    os.environ["HPCFLOW_HOME"] = str(home)
    log = folder / f"round-{number}.log"
    before = jobs()
    command = ["run", config, "--site", site, "--json"]

    def run() -> int:
        killed_at(number)
        return main(command)

    code = in_child(run, log)
    runs = list_runs(Home(home)) if home.exists() else []
    following = ["resume", runs[0].path.name] if runs else command
    second = in_child(lambda: main(following), log) if code != 0 else 0
    new = sorted(jobs() - before)
    if new:
        subprocess.run(["scancel", *new], check=True)
    return {
        "round": number,
        "exit_code": code,
        "next": following[0],
        "next_exit_code": second,
        "jobs": new,
        "runs": len(list_runs(Home(home))),
        "log": log.read_text(),
    }


def drive(config: str, site: str, folder: Path, one_in: int) -> None:
    """Round after round, until one ends before its moment comes."""
    number, code = random.randrange(one_in) + 1 - one_in, -1
    while code != 0:
        number += one_in
        result = one_round(number, config, site, folder)
        code = result["exit_code"]
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    drive(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
