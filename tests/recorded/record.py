"""Record what this machine's Slurm prints: ``python -m tests.recorded.record USER [OUT]``, as root.

It sends about twenty jobs as USER, one for every fate that a job can have, ends some of them as the
operator, and keeps the raw answers to hpcflow's own questions below tests/recorded/<version>/, with
``truth.json``: what really became of each job. SLURM_CONF and PATH choose the cluster; it should
have nothing else to do. Takes about two minutes.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpcflow.schedulers.slurm import outlook, parse_jobs
from hpcflow.schedulers.slurm.commands import CLUSTER_QUESTIONS
from hpcflow.schedulers.slurm.run_command import FOR_QUERIES, clean_environment
from hpcflow.schedulers.slurm.units import format_time

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Fate:
    """A job, what is done to it, and what must be said of it in the end."""

    name: str
    body: str = "sleep 600"
    options: tuple[str, ...] = ()
    then: str = ""
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    nodes: int = 1
    later: str = ""
    """The state from Slurm 24.11 on, if it is another one."""


FATES = (
    Fate("well", "exit 0", state="COMPLETED", exit_code=0),
    Fate("with-a-code", "exit 75", state="FAILED", exit_code=75),
    Fate("with-a-large-code", "exit 200", state="FAILED", exit_code=200),
    Fate("by-a-signal", "kill -9 $$", state="FAILED", signal=9),
    Fate("on-two-nodes", "exit 0", ("-N2",), state="COMPLETED", exit_code=0, nodes=2),
    Fate("array", "exit 0", ("--array=1-2",), state="COMPLETED", exit_code=0),
    Fate("waiting-array", options=("--array=0-9,12%2", "--hold"), state="PENDING", nodes=0),
    Fate("held", options=("--hold",), state="PENDING", nodes=0),
    Fate("never-started", options=("--hold",), then="scancel {id}", state="CANCELLED", nodes=0),
    Fate("cancelled", then="scancel {id}", state="CANCELLED"),
    Fate("requeued", then="scontrol requeue {id}", state="PENDING", nodes=0),
    Fate("suspended", then="operator scontrol suspend {id}", state="SUSPENDED"),
    Fate("running", state="RUNNING"),
    Fate("too-long", options=("-t1",), state="TIMEOUT"),
    Fate("on-a-dead-node", options=("-wn4", "--no-requeue"), then="operator down",
         state="NODE_FAIL"),
    Fate("preempted-while-starting", "srun bash -c 'trap \"exit 7\" TERM; sleep 600 & wait'",
         ("-pspot", "-wn3", "--exclusive", "--no-requeue"), state="FAILED", exit_code=7,
         later="PREEMPTED",
         then="sbatch -pgpu -wn3 --exclusive -t1 -o/dev/null -Jits-successor --wrap=true"),
    Fate("shrunk", options=("-wn[1-2]",), then="scontrol update jobid={id} numnodes=1",
         state="RUNNING"),
    Fate("heterogeneous", options=("-wn1", ":", "-wn2"), state="RUNNING"),
    Fate("odd|name, of\nothers", "exit 0", state="COMPLETED", exit_code=0),
)  # fmt: skip

REFUSED = (
    "--account=nowhere", "--partition=nowhere", "--qos=nowhere", "--constraint=nowhere",
    "--nodes=9", "--mem=9T", "--gres=gpu:9", "--gres=gpu:nowhere:1", "--cpus-per-task=999",
    "--exclude=nowhere", "--time=99-0", "--bogus",
)  # fmt: skip

DEAD = "SLURM_CONF=/nonexistent/slurm.conf"


def main(user: str, out: str | None = None) -> None:
    recorder = Recorder(user)
    version = re.sub(r"^[a-z-]* ?", "", recorder.ask("squeue --version").strip())
    folder = Path(out) if out else HERE / version
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Slurm {version} -> {folder}")
    recorder.submit_all()
    recorder.wait_for_the_ends()
    recorder.write(folder, version)
    recorder.clean_up()


class Recorder:
    """One recording."""

    def __init__(self, user: str) -> None:
        self._entry = pwd.getpwnam(user)
        self._folder = Path(tempfile.mkdtemp(prefix="record-"))
        os.chown(self._folder, self._entry.pw_uid, self._entry.pw_gid)
        self._ids: dict[str, str] = {}
        self._began = datetime.now(timezone.utc)

    def ask(self, words: str | list[str]) -> str:
        return self._run(words, query=True).stdout

    def _run(
        self, words: str | list[str], *, query: bool = False, operator: bool = False
    ) -> subprocess.CompletedProcess[str]:
        argv = words.split() if isinstance(words, str) else words
        environment = clean_environment(os.environ) | (FOR_QUERIES if query else {})
        uid, gid = (0, 0) if operator else (self._entry.pw_uid, self._entry.pw_gid)
        return subprocess.run(
            argv, env=environment, cwd=self._folder, user=uid, group=gid, extra_groups=[],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def submit_all(self) -> None:
        for fate in FATES:
            script = self._script(fate.body)
            argv = ["sbatch", "--parsable", "--job-name", fate.name, "--output=/dev/null"]
            done = self._run([*argv, "--time=10", *fate.options, str(script)])
            assert done.returncode == 0, done.stderr
            self._ids[fate.name] = done.stdout.strip()
        time.sleep(15)  # until their programs have begun, also on a busy machine
        for fate in FATES:
            self._do(fate)

    def _script(self, body: str) -> Path:
        script = self._folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{body}\n")
        script.chmod(0o755)
        return script

    def _do(self, fate: Fate) -> None:
        words = fate.then.format(id=self._ids[fate.name])
        if words == "operator down":
            node = "nodename=n4"
            self._run(f"scontrol update {node} state=down reason=record", operator=True)
            time.sleep(3)
            self._run(f"scontrol update {node} state=resume", operator=True)
        elif words.startswith("operator "):
            self._run(words.removeprefix("operator "), operator=True)
        elif words:
            self._run(words)

    def wait_for_the_ends(self) -> None:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            states = self.ask(["squeue", "--me", "-h", "-t", "all", "-n", "too-long", "-o", "%T"])
            if states.strip() == "TIMEOUT":
                break
            time.sleep(3)
        time.sleep(8)  # accounting lags behind

    def write(self, folder: Path, version: str) -> None:
        since = format_time(self._began)
        questions = {
            "squeue.txt": ["squeue", "--me", "--all", "--states=all", "--noheader",
                           f"--Format={parse_jobs.QUEUE_FORMAT}"],
            "sacct.txt": ["sacct", "--duplicates", "--allocations", "--noheader", "--parsable2",
                          f"--delimiter={parse_jobs.FIELD_END}", f"--starttime={since}",
                          f"--format={parse_jobs.ACCOUNTING_FORMAT}",
                          "--jobs", ",".join(each.split(";")[0] for each in self._ids.values())],
            **{f"{name}.txt": list(argv) for name, argv in CLUSTER_QUESTIONS.items()},
            "qos.txt": outlook.questions("", ())["qos"],
            "accounts.txt": ["sacctmgr", "--noheader", "--parsable2", "show", "associations",
                             "format=cluster,account", f"user={self._entry.pw_name}"],
        }  # fmt: skip
        for name, argv in questions.items():
            done = self._run(argv, query=True)
            if done.returncode == 0:
                (folder / name).write_text(done.stdout)
        (folder / "truth.json").write_text(json.dumps(self._truth(version), indent=1) + "\n")
        (folder / "sbatch.json").write_text(json.dumps(self._answers(), indent=1) + "\n")

    def _truth(self, version: str) -> list[dict[str, Any]]:
        is_later = tuple(map(int, version.split(".")[:2])) >= (24, 11)
        return [
            {
                "job_id": self._ids[fate.name],
                "name": fate.name,
                "state": fate.later if fate.later and is_later else fate.state,
                "exit_code": fate.exit_code,
                "signal": fate.signal,
                "nodes": fate.nodes,
            }
            for fate in FATES
        ]

    def _answers(self) -> list[dict[str, Any]]:
        script = str(self._script("exit 0"))
        answers = []
        for option in ("--hold", *REFUSED):
            done = self._run(["sbatch", "--parsable", "--output=/dev/null", option, script])
            answers.append({"option": option, **_told(done)})
        missing = self._run(["sbatch", "--parsable", "/nonexistent/job.sbatch"])
        answers.append({"option": "no script", **_told(missing)})
        nowhere = self._run(["env", DEAD, "sbatch", "--parsable", script])
        answers.append({"option": "no configuration", **_told(nowhere)})
        return answers

    def clean_up(self) -> None:
        self._run(["scancel", "--user", self._entry.pw_name], operator=True)


def _told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return {"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


if __name__ == "__main__":
    main(*sys.argv[1:])
