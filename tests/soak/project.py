"""A healthy project: runs in every state, a sweep, checkpoints, a budget, a mirror, a ledger.

It is made by the commands themselves, on a cluster of stand-ins, and is put back as it was before
each try.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from hpcflow.cli.main import COMMANDS, main
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import list_runs
from hpcflow.testing.cluster import poll
from hpcflow.testing.stand_in import Job, StandIn, pass_five_minutes
from tests.runtime.published import publish
from tests.soak.worker import Ended, in_child

CONFIG: Final = """\
name: {name}
project: vision
command: ["true"]
params: {{lr: 0.1}}
launch: {{framework: none, launcher: none}}
resources: {{time_limit: 10m, account: physics}}
retry: {{backoff: 30m, failures: {failures}}}
mirror: {store}
tags: [paper]
"""
SWEEP: Final = """\
name: search
base: trial.yaml
space: {lr: {low: 0.001, high: 1.0, log: true}}
objective: {metric: accuracy, direction: maximize}
sampler: random
parallel: 3
budget: {trials: 5}
"""
#: The runs that are not of the sweep, in the order in which they are sent.
ROLES: Final = (
    "completed",
    "waiting",
    "running",
    "queued",
    "failed",
    "cancelled",
    "held",
    "purged",
)
FILES: Final = {"model.pt": b"weights " * 600, "rank0/optim.pt": b"adam" * 500}


def import_all() -> None:
    """Import what commands import when they are called, so that forks need not."""
    for module, _ in COMMANDS.values():
        import_module(module)


@functools.cache
def shared_project(folder: Path) -> Project:
    """The project in ``folder`` of all parts that put it back: to make it takes longer than tries
    do."""
    return Project(folder)


class Project:
    """The project, in ``folder``/work; what it was like at first is beside it."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder / "work"
        self._first = folder / "first"
        self.folder.mkdir(mode=0o700)
        self.slurm = StandIn(self.folder / "slurm")
        self.home = Home(self.folder / "user" / "home")
        self.scratch = self.folder / "scratch"
        self.store = self.folder / "store"
        self.environ = self.slurm.environment(self.home.path, self.scratch)
        self.environ |= {"HPCFLOW_SITE": "devcluster", "COLUMNS": "200", **(environ or {})}
        for folder in (self.home.path.parent, self.scratch):
            folder.mkdir(mode=0o700)
        self.runs: dict[str, str] = {}
        self.sweep = ""
        self._make()
        self.checkpoints = self._checkpoints()
        self.jobs = self.slurm.jobs()
        subprocess.run(["cp", "-a", str(self.folder), str(self._first)], check=True)

    def reset(self) -> None:
        """Put it back as it was."""
        poll(self._remove, 60, "the project is removed")
        subprocess.run(["cp", "-a", str(self._first), str(self.folder)], check=True)

    def _remove(self) -> bool:
        self._end_restores()
        subprocess.run(["chmod", "-R", "u+rwX", str(self.folder)], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", str(self.folder)], check=False, capture_output=True)
        return not self.folder.exists()

    def _end_restores(self) -> None:
        """End what a daemon has started: it would make its folders again."""
        home = f"HPCFLOW_HOME={self.home.path}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if home in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def say(
        self,
        *args: str,
        at_terminal: bool = False,
        environ: Mapping[str, str] | None = None,
        working_dir: Path | None = None,
    ) -> Ended:
        """``hpcflow …``, with ``environ`` over the usual environment."""
        return in_child(
            lambda: main(list(args)),
            environ=self.environ | dict(environ or {}),
            folder=working_dir or self.folder,
            at_terminal=at_terminal,
        )

    def run_dir(self, role: str) -> RunDir:
        return self.home.run_dir(self.scratch / "hpcflow" / "vision" / self.runs[role])

    def environ_of_job(self, role: str) -> dict[str, str]:
        """The environment of the first job of a run, as far as the runtime reads it."""
        run_dir = self.run_dir(role)
        attempt = run_dir.attempt(1)
        names = {
            "RUN_ID": run_dir.path.name, "ATTEMPT": 1, "RUN_DIR": run_dir.path,
            "ATTEMPT_DIR": attempt.path, "EVENTS": attempt.events, "NOTICE": attempt.notice,
            "CHECKPOINT_DIR": run_dir.checkpoints, "CHECKPOINT_KEEP": '{"last": 2}',
        }  # fmt: skip
        return self.environ | {f"HPCFLOW_{name}": str(value) for name, value in names.items()}

    def role_of(self, path: Path) -> str:
        """A path in the project as it is named in a finding: runs by their roles."""
        text = str(path.relative_to(self.folder))
        for role, run_id in self.runs.items():
            text = text.replace(run_id, f"<{role}>")
        return text.replace(self.sweep, "<sweep>") if self.sweep else text

    def touches(self, path: Path) -> str | None:
        """The role of the run that a path belongs to."""
        return next((role for role, run in self.runs.items() if run in str(path)), None)

    def _must(self, *args: str) -> str:
        ended = self.say(*args)
        assert ended.code == 0, f"hpcflow {' '.join(args)}: {ended.code}\n{ended.text}"
        return ended.text

    def _make(self) -> None:
        self._must("budget", "set", "project:vision", "--hard", "1000")
        for role in ROLES:
            config = self.folder / f"{role}.yaml"
            config.write_text(
                CONFIG.format(name=role, store=self.store, failures=int(role == "waiting"))
            )
            self._must("run", str(config))
            (self.runs[role],) = self._newcomers()
        (self.folder / "trial.yaml").write_text(
            CONFIG.format(name="trial", store=self.store, failures=0)
        )
        (self.folder / "sweep.yaml").write_text(SWEEP)
        self._must("sweep", "start", str(self.folder / "sweep.yaml"))
        self._know_trials()
        (folder,) = self.home.sweeps.iterdir()
        self.sweep = folder.name
        self._happen()
        self._must("daemon", "--once")
        self._know_trials()
        pass_five_minutes(self.home)
        self._must("mirror", "--once")
        self._must("ls")
        shutil.rmtree(self.run_dir("purged").path)
        self._must("ls")

    def _know_trials(self) -> None:
        for run_id in self._newcomers():
            self.runs[f"trial{len(self.runs) - len(ROLES)}"] = run_id

    def _newcomers(self) -> list[str]:
        known = set(self.runs.values())
        found = [run_dir.path.name for run_dir in list_runs(self.home)]
        jobs = [job.run_id for job in self.slurm.jobs()]
        return sorted((run for run in found if run not in known), key=jobs.index)

    def _happen(self) -> None:
        """Jobs start, save, and end."""
        for role in ("completed", "waiting", "running", "failed", "held", "purged",
                     "trial0", "trial1"):  # fmt: skip
            job = self.job(role)
            assert self.slurm.start(job, self.home)
            for train_step in (100, 200):
                self._save(job, role, train_step)
        ends = {"completed": "COMPLETED", "waiting": "FAILED", "failed": "FAILED",
                "held": "PREEMPTED", "purged": "PREEMPTED", "trial0": "COMPLETED"}  # fmt: skip
        for role, state in ends.items():
            job = self.job(role)
            if state == "COMPLETED":
                metrics = {"accuracy": 0.5}
                self.slurm.say(job, self.home, "finished", train_step=200, metrics=metrics)
            self.slurm.end(job, self.home, state, exit_code=state == "FAILED")
        self._must("hold", self.runs["held"])
        self._must("cancel", self.runs["cancelled"])

    def job(self, role: str) -> Job:
        return next(job for job in self.slurm.jobs() if job.run_id == self.runs[role])

    def _save(self, job: Job, role: str, train_step: int) -> None:
        facts = {"run_id": job.run_id, "attempt": 1, "world_size": 1}
        made = publish(self.run_dir(role).checkpoints, train_step, FILES, **facts)
        path = f"checkpoints/{made.path.name}"
        size = made.size_bytes
        self.slurm.say(
            job, self.home, "checkpoint", train_step=train_step, path=path, size_bytes=size
        )

    def _checkpoints(self) -> dict[str, dict[str, bytes]]:
        """Train step's folder -> its files as they must be, in every run the same."""
        return {f"{step:09d}": dict(FILES) for step in (100, 200)}
