"""Executing a rendered script with real bash, without Slurm: the folder, the stub, the outcome."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hpcflow.model.events import parse_event
from hpcflow.model.run import Run
from hpcflow.model.spec import RunSpec
from hpcflow.ownership import NO_TRUST
from hpcflow.rendering.job import make_integrity_check
from hpcflow.runtime import rank_process
from hpcflow.runtime.reading import read_lines
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import AttemptDir, RunDir
from hpcflow.storage.runtime_copy import runtime_sum
from tests.rendering.samples import RUN_ID, a_local_site, a_run, a_spec, script_of

#: Of each process of xdist its own: the port of torchrun's rendezvous comes of it.
LOCAL_JOB_ID = str(os.getpid())

#: Stands for srun: puts down what it was given, and runs the command if it is told to.
SRUN_STUB = """#!/bin/bash
folder=${0%/*}
printf '%s\\0' "$@" > "$folder/argv"
while IFS= read -r -d '' line; do
  printf '%s\\0' "$line"
done < /proc/$$/environ > "$folder/environ"
while [[ $1 == --* ]]; do shift; done
if [[ -n ${HPCFLOW_ATTEMPT_DIR-} ]]; then : > "$HPCFLOW_ATTEMPT_DIR/ended"; fi
if [[ -e $folder/goes-on ]]; then exec "$@"; fi
"""


@dataclass
class Bench:
    """A run directory and a ``bin`` that goes before PATH.

    Attributes:
        umask: what was frozen into the run.
        begins_from: the checkpoint of another run that was frozen into it.
    """

    folder: Path
    umask: str | None = None
    begins_from: str | None = None

    def __post_init__(self) -> None:
        self.bin = self.folder / "bin"
        self.work = self.folder / "work"
        for path in (self.bin, self.work, self.attempt.path):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def run_dir(self) -> RunDir:
        return RunDir(self.folder / "runs" / RUN_ID)

    @property
    def attempt(self) -> AttemptDir:
        return self.run_dir.attempt(1)

    def program(self, name: str, text: str) -> Path:
        """Put a program into ``bin``."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run(self, spec: RunSpec) -> Run:
        places = {"run_dir": str(self.run_dir.path), "working_dir": str(self.work)}
        return a_run(spec, umask=self.umask, begins_from=self.begins_from, **places)

    def write(self, spec: RunSpec, site: Site, **options: Any) -> None:
        """Render the script into the attempt's folder, and make the runtime if there is none."""
        runtime = self.run_dir.runtime / "hpcflow" / "runtime"
        if not runtime.exists():
            runtime.mkdir(mode=0o700, parents=True)
            shutil.copy(rank_process.__file__, runtime)
        options.setdefault(
            "integrity",
            make_integrity_check(self.run_dir.path, NO_TRUST, runtime_sum(self.run_dir.runtime)),
        )
        self.attempt.script.write_text(script_of(self.run(spec), site, **options))

    def environment(self, **variables: str) -> dict[str, str]:
        """A login shell's, with ``bin`` first, and one job's variables."""
        return {
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "HPCFLOW_LOCAL_JOB_ID": LOCAL_JOB_ID,
            **variables,
        }

    def start(self, **variables: str) -> subprocess.Popen[bytes]:
        """Begin to execute the script as the scheduler would."""
        with self.attempt.log.open("ab") as log:
            return subprocess.Popen(
                ["bash", str(self.attempt.script)],
                cwd=self.attempt.path,
                env=self.environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def execute(self, **variables: str) -> int:
        """Execute the script to its end; the exit code."""
        return self.start(**variables).wait(120)

    def events(self) -> list[dict[str, Any]]:
        """All events, and every line is one."""
        if not self.attempt.events.exists():
            return []
        assert self.attempt.events.read_bytes()[-1:] in (b"", b"\n")
        lines = list(read_lines(self.attempt.events))
        found = [parse_event(line) for line in lines]
        assert None not in found, lines
        return [event for event in found if event is not None]

    def log(self) -> str:
        return self.attempt.log.read_text(errors="replace")

    def dumped(self, name: str) -> list[bytes]:
        """What the srun stub put down: ``argv`` or ``environ``."""
        return (self.bin / name).read_bytes().split(b"\0")[:-1]

    def dumped_environ(self) -> Mapping[str, str]:
        pairs = (os.fsdecode(line).partition("=") for line in self.dumped("environ"))
        return {name: value for name, _, value in pairs}


#: ``launch`` of a command that is started once, by nobody.
NONE: Final = {"launcher": "none", "framework": "none"}

#: A program that says who it is and what it is told.
RANK: Final = Path(__file__).parent / "programs" / "rank.py"


def written(bench: Bench, *command: str, site: Site | None = None, **changes: Any) -> Bench:
    """The script of a plain command, on this machine unless ``site`` is another."""
    options = {name: changes.pop(name) for name in ("resume_from",) if name in changes}
    spec = a_spec(script=None, command=list(command), **{"launch": NONE, **changes})
    bench.write(spec, site or a_local_site(), **options)
    return bench


def kinds(bench: Bench) -> list[str]:
    """Kinds of the events, in order."""
    return [str(event["event"]) for event in bench.events()]


def json_of(path: Path) -> dict[str, Any]:
    """A JSON file."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
