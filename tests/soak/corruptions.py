"""A healthy project, one or more places of it damaged, and the commands that people type then.

What must hold, whatever was damaged:

- each command ends in time, in little memory, with an exit code of its own and no traceback;
- a terminal gets no control characters that were in the data;
- nothing outside the project is read or written, and nothing of it is told;
- no run is sent while a job of it is there, or that had ended for good; no job is cancelled that
  nobody wished to be;
- what is not damaged is listed, and as it was;
- a checkpoint that is not what was written is never gone on from, restored or found whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from hpcflow.runtime.__main__ import main as runtime
from hpcflow.storage.layout import RunDir
from hpcflow.testing.stand_in import assert_exactly_once, pass_five_minutes
from tests.soak.damage import hurt
from tests.soak.findings import Findings
from tests.soak.oracle import faults_of
from tests.soak.outside import Outside
from tests.soak.project import FILES, Project, import_all
from tests.soak.worker import Ended, in_child

#: Runs that have ended: only a person sends them again.
_AT_REST: Final = ("completed", "failed", "cancelled", "held", "trial0")
_COMMANDS_A_TRY: Final = 5
#: ``RUN`` and ``SWEEP`` stand for those of the try.
COMMANDS: Final = (
    "ls --all", "show RUN", "history RUN", "why RUN", "logs RUN", "checkpoint ls RUN",
    "checkpoint verify RUN", "checkpoint show RUN 200", "checkpoint prune RUN", "scratch",
    "ledger check", "ledger rebuild", "daemon --once", "daemon status", "sweep ls --all",
    "sweep status SWEEP", "sweep trials SWEEP", "sweep best SWEEP", "sweep export SWEEP",
    "sweep tick", "mirror --once", "mirror status", "mirror verify RUN", "restore RUN",
    "cost report", "cost wasted", "cost audit", "efficiency RUN", "efficiency --by project",
    "budget ls", "budget show project:vision", "nodes", "limits", "hold RUN", "release RUN",
    "cancel RUN", "resume RUN", "resume-path RUN", "purge and restore RUN", "site show devcluster",
)  # fmt: skip


def run(folder: Path, findings: Findings, numbers: Sequence[int]) -> None:
    """Each try: damage, some commands, the oracle."""
    project, outside = Project(folder), Outside(folder / "outside")
    _warm_up(project)
    for number in numbers:
        dice = findings.dice(number)
        _Try(project, outside, dice, findings).run()
        project.reset()
        findings.progress(len(numbers))


def _warm_up(project: Project) -> None:
    """What is healthy passes: else the oracle is wrong. And all is imported before the forks."""
    import_all()
    listed = project.say("ls", "--all", "--json")
    assert {run["run_id"] for run in json.loads(listed.out)} == set(project.runs.values())
    project.reset()


class _Try:
    def __init__(
        self, project: Project, outside: Outside, dice: Random, findings: Findings
    ) -> None:
        self._project, self._outside, self._dice = project, outside, dice
        self._findings = findings
        self._story: list[str] = []
        self._hurt: list[Path] = []
        #: Runs that a command of this try was about: they may be sent, or be cancelled.
        self._wished: set[str] = set()

    def run(self) -> None:
        places = self._places()
        for _ in range(self._dice.choice((1, 1, 1, 2, 4))):
            path = self._dice.choice(places[self._dice.choice(sorted(places))])
            if os.path.lexists(path) and path not in self._hurt:
                self._damage(path)
        self._listed()
        for command in self._dice.sample(COMMANDS, _COMMANDS_A_TRY):
            self._type(command)
        self._exactly_once()

    def _damage(self, path: Path) -> None:
        where = self._project.role_of(path)
        try:
            how = hurt(path, self._dice, self._outside)
        except (
            OSError,
            ValueError,
            RecursionError,
        ) as error:  # the damage before this one is in its way
            how = f"not damaged: {error}"
        self._hurt.append(path)
        self._story.append(f"damaged {where}: {how}")

    def _places(self) -> dict[str, list[Path]]:
        """What can be damaged, by what it is: there are many more files of some kinds."""
        found: dict[str, list[Path]] = {}
        project = self._project
        for path in sorted(project.folder.rglob("*"), key=project.role_of):
            parts = path.relative_to(project.folder).parts
            kind = parts[0]
            if kind == "slurm" or len(parts) < 2 or parts[-1].endswith(".yaml"):
                continue
            if kind == "user" and len(parts) > 2:
                named = parts[2] if len(parts) > 3 else "home"
                kind = f"{named} folder" if path.is_dir() and not path.is_symlink() else named
            elif kind == "scratch" and len(parts) > 3:
                kind = "run" if len(parts) == 5 else parts[4] if len(parts) > 5 else "run folder"
                if len(parts) == 6 and parts[4] == "checkpoints":
                    kind = "checkpoint folder"
            if "runtime" in parts:
                kind = "runtime"
            found.setdefault(kind, []).append(path)
        return found

    def _listed(self) -> None:
        """The first thing that anybody types: the others are there, as they were."""
        ended = self._type("ls --all --json", at_terminal=False)
        own = self._project.home.path
        if any(path.is_relative_to(own) and "runs" not in path.parts for path in self._hurt):
            return  # the ledger, perhaps: then it says what to do
        if ended.code != 0:
            self._found("ls fails for all runs", ended.text[-800:])
            return
        shown = re.search(r"^\[$.*^\]$", ended.text, re.MULTILINE | re.DOTALL)  # warnings beside
        listed = {run["run_id"] for run in json.loads(shown[0])} if shown else set()
        hurt = {self._project.touches(path) for path in self._hurt}
        touched_all = any(self._project.touches(path) is None for path in self._hurt)
        for role, run_id in self._project.runs.items():
            if role not in hurt and not touched_all and run_id not in listed:
                self._found("ls hides a run that is not damaged", f"{role}\n{ended.text[-800:]}")

    def _type(self, command: str, *, at_terminal: bool | None = None) -> Ended:
        roles = [role for path in self._hurt if (role := self._project.touches(path))]
        any_role = self._dice.choice(list(self._project.runs))
        role = self._dice.choice(roles) if roles and self._dice.random() < 0.8 else any_role
        run_id = self._project.runs[role]
        at_terminal = self._dice.random() < 0.6 if at_terminal is None else at_terminal
        self._story.append(f"hpcflow {command} ({role})")
        if command.startswith(("release", "cancel", "resume RUN")):
            self._wished.add(role)
        if command.startswith("daemon --once"):
            self._quietly(lambda: pass_five_minutes(self._project.home))
        if command == "resume-path RUN":
            ended = self._resume_path(role)
        elif command == "purge and restore RUN":
            self._quietly(lambda: shutil.rmtree(self._project.run_dir(role).path))
            ended = self._project.say("restore", run_id, at_terminal=at_terminal)
            if ended.code == 0:
                self._whole(self._project.run_dir(role), "restored")
        else:
            args = command.replace("RUN", run_id).replace("SWEEP", self._project.sweep).split()
            ended = self._project.say(*args, at_terminal=at_terminal)
            if args[:2] == ["checkpoint", "verify"] and ended.code == 0:
                self._whole(self._project.run_dir(role), "verified")
        for fault in faults_of(ended, at_terminal=at_terminal):
            self._found(f"{command}: {fault}", ended.text[-1500:])
        if self._outside.marker.encode() in ended.out:
            self._found(f"{command}: tells what lies outside the project", ended.text[-800:])
        for complaint in self._outside.complaints():
            self._found(f"{command}: {complaint}", ended.text[-800:])
        return ended

    def _resume_path(self, role: str) -> Ended:
        """What the job would go on from."""
        run_dir = self._project.run_dir(role)
        ended = in_child(
            lambda: runtime(["resume-path"]),
            environ=self._project.environ_of_job(role),
            folder=self._project.folder,
        )
        if ended.code == 0:
            path = Path(ended.text.splitlines()[-1])
            if path.parent != run_dir.checkpoints:
                self._found("resume-path: names what is no checkpoint of the run", ended.text)
            else:
                self._is_whole(path, "gone on from")
        return ended

    def _whole(self, run_dir: RunDir, how: str) -> None:
        folder = run_dir.checkpoints
        for name in self._project.checkpoints:
            if (folder / name / "manifest.json").is_file():
                self._is_whole(folder / name, how)

    def _is_whole(self, path: Path, how: str) -> None:
        for name, data in FILES.items():
            file = path / name
            try:
                same = file.read_bytes() == data
            except OSError:
                same = False
            if not same or not file.resolve().is_relative_to(self._project.folder):
                self._found(f"a damaged checkpoint is {how}", f"{self._project.role_of(file)}")

    def _exactly_once(self) -> None:
        jobs = self._project.slurm.jobs()
        try:
            assert_exactly_once(jobs)
        except AssertionError as error:
            self._found("a run is sent twice", str(error))
        roles = {run_id: role for role, run_id in self._project.runs.items()}
        before = {job.job_id: job for job in self._project.jobs}
        strangers = set()
        for job in jobs:
            role = roles.get(job.run_id)
            if role is None:
                strangers.add(job.run_id)
            elif role in self._wished:
                continue
            elif job.job_id not in before and role in _AT_REST:
                self._found(f"a run that was {role} is sent again", job.name)
            elif job.is_over and not before.get(job.job_id, job).is_over:
                self._found("a job is cancelled that nobody wished to be", f"{role} {job.name}")
        if len(strangers) > 1:
            self._found("a sweep sends trials again", str(sorted(strangers)))

    def _found(self, kind: str, text: str) -> None:
        self._findings.add(kind, "\n".join([*self._story, "—", text]))

    @staticmethod
    def _quietly(function: Callable[[], None]) -> None:
        """What a person or time does, as far as the damage lets them."""
        with suppress(Exception):  # a database that is none, a folder that is none
            function()
