"""One try: what was damaged, the commands that are typed then, and what must hold after each.

- Each command ends in time, in little memory, with an exit code of its own and no traceback;
- a terminal gets no control characters that were in the data;
- nothing outside the project is read or written, and nothing of it is told;
- no run is sent while a job of it is there, or that had ended for good; no job is
  cancelled without a request;
- what is not damaged is listed;
- a checkpoint that is not what was written is never gone on from, restored or found whole.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from hpcflow.runtime.__main__ import main as runtime
from hpcflow.testing.stand_in import assert_exactly_once, pass_five_minutes
from tests.soak.damage import hurt
from tests.soak.findings import Findings
from tests.soak.oracle import faults_of
from tests.soak.outside import Outside
from tests.soak.project import FILES, Project, import_all
from tests.soak.worker import Ended, in_child

#: Runs that have ended: only a person sends them again.
_AT_REST: Final = ("completed", "failed", "cancelled", "held", "trial0")


def warm_up(project: Project) -> None:
    """Import all before the forks; and what is healthy passes: else the oracle is wrong."""
    import_all()
    listed = project.say("ls", "--all", "--json")
    assert {run["run_id"] for run in listed.document["runs"]} == set(project.runs.values())
    project.reset()


class Try:
    """The person at the project, and the oracle."""

    def __init__(
        self, project: Project, outside: Outside, dice: Random, findings: Findings
    ) -> None:
        self.project, self.outside, self.dice = project, outside, dice
        self._findings = findings
        self.story: list[str] = []
        self.hurt: list[Path] = []
        #: Runs that a command of this try was about: they may be sent, or be cancelled.
        self.requested: set[str] = set()
        #: Runs that were restored from a store by a home that knew nothing of them.
        self.forgotten: set[str] = set()

    def damage(self, path: Path) -> None:
        where = self.project.role_of(path)
        try:
            how = hurt(path, self.dice, self.outside)
        except (OSError, ValueError, RecursionError) as error:  # an earlier one is in its way
            how = f"not damaged: {error}"
        self.hurt.append(path)
        self.story.append(f"damaged {where}: {how}")

    def listed(self) -> None:
        """The first thing that anybody types: the others are there, as they were."""
        ended = self.type("ls --all --json", at_terminal=False)
        own = self.project.home.path
        if any(path.is_relative_to(own) and "runs" not in path.parts for path in self.hurt):
            return  # the ledger, perhaps: then it says what to do
        if ended.code != 0:
            self.found("ls fails for all runs", ended.text[-800:])
            return
        # There are warnings beside it.
        shown = re.search(r"^\{\"format\".*\}$", ended.text, re.MULTILINE | re.DOTALL)
        listed = {run["run_id"] for run in json.loads(shown[0])["runs"]} if shown else set()
        hurt = {self.project.touches(path) for path in self.hurt}
        touched_all = any(self.project.touches(path) is None for path in self.hurt)
        for role, run_id in self.project.runs.items():
            if role not in hurt and not touched_all and run_id not in listed:
                self.found("ls hides a run that is not damaged", f"{role}\n{ended.text[-800:]}")

    def type(
        self,
        command: str,
        *,
        role: str | None = None,
        at_terminal: bool | None = None,
        environ: Mapping[str, str] | None = None,
        working_dir: Path | None = None,
    ) -> Ended:
        """``hpcflow``, with this command; about a run that is damaged, as a rule."""
        roles = [role for path in self.hurt if (role := self.project.touches(path))]
        any_role = self.dice.choice(list(self.project.runs))
        of_any = not roles or self.dice.random() < 0.2
        role = role or (any_role if of_any else self.dice.choice(roles))
        run_id = self.project.runs[role]
        at_terminal = self.dice.random() < 0.6 if at_terminal is None else at_terminal
        self.story.append(f"hpcflow {command} ({role})")
        if command.startswith(("release", "cancel", "resume RUN")):
            self.requested.add(role)
        if command.startswith("daemon --once"):
            self._quietly(lambda: pass_five_minutes(self.project.home))
        if command == "resume-path RUN":
            ended = self._resume_path(role)
        elif command == "purge and restore RUN":
            # Not shutil.rmtree(): it waits for a writer where there is a pipe.
            subprocess.run(["rm", "-rf", self.project.run_dir(role).path], check=False)
            ended = self.project.say("restore", run_id, at_terminal=at_terminal, environ=environ)
            if ended.code == 0:
                self.whole(self._checkpoints(role), "restored")
        else:
            args = command.replace("RUN", run_id).replace("SWEEP", self.project.sweep).split()
            args += [str(self.project.folder / "new.yaml")] if args == ["run"] else []
            ended = self.project.say(
                *args, at_terminal=at_terminal, environ=environ, working_dir=working_dir
            )
            if args[:2] == ["checkpoint", "verify"] and ended.code == 0:
                self.whole(self._checkpoints(role), "verified")
        self.judge(command, ended, at_terminal=at_terminal)
        return ended

    def judge(self, command: str, ended: Ended, *, at_terminal: bool = False) -> None:
        """What no command may do."""
        for fault in faults_of(ended, at_terminal=at_terminal):
            kind = fault if fault.startswith("traceback") else f"{command}: {fault}"
            self.found(kind, ended.text[-1500:])
        if self.outside.marker.encode() in ended.out:
            self.found(f"{command}: tells what lies outside the project", ended.text[-800:])
        for complaint in self.outside.complaints():
            self.found(f"{command}: {complaint}", ended.text[-800:])

    def _resume_path(self, role: str) -> Ended:
        """What the job would go on from."""
        run_dir = self.project.run_dir(role)
        ended = in_child(
            lambda: runtime(["resume-path"]),
            environ=self.project.environ_of_job(role),
            folder=self.project.folder,
        )
        if ended.code == 0:
            path = Path(ended.text.splitlines()[-1])
            if path.parent != run_dir.checkpoints:
                self.found("resume-path: names what is no checkpoint of the run", ended.text)
            else:
                self._is_whole(path, "gone on from")
        return ended

    def _checkpoints(self, role: str) -> list[Path]:
        return list(self.project.run_dir(role).checkpoints.glob("*"))

    def whole(self, folders: Sequence[Path], how: str) -> None:
        """Each checkpoint among them that is visible, and that the project has, is as it was."""
        for folder in folders:
            if folder.name in self.project.checkpoints and (folder / "manifest.json").is_file():
                self._is_whole(folder, how)

    def _is_whole(self, path: Path, how: str) -> None:
        for name, data in FILES.items():
            file = path / name
            try:
                same = file.read_bytes() == data
            except OSError:
                same = False
            if not same or not file.resolve().is_relative_to(self.project.folder):
                self.found(f"a damaged checkpoint is {how}", f"{self.project.role_of(file)}")

    def exactly_once(self) -> None:
        jobs = self.project.slurm.jobs()
        roles = {run_id: role for role, run_id in self.project.runs.items()}
        before = {job.job_id: job for job in self.project.jobs}
        # Where only a store with a damaged journal was left of a run, its attempts count from 1.
        ended = {job_id for job_id, job in before.items() if job.is_over}
        known = [
            job
            for job in jobs
            if not (job.job_id in ended and roles.get(job.run_id) in self.forgotten)
        ]
        try:
            assert_exactly_once(known)
        except AssertionError as error:
            self.found("a run is sent twice", str(error))
        strangers = set()
        for job in jobs:
            role = roles.get(job.run_id)
            if role is None:
                strangers.add(job.run_id)
            elif role in self.requested:
                continue
            elif job.job_id not in before and role in _AT_REST:
                self.found(f"a run that was {role} is sent again", job.name)
            elif job.is_over and not before.get(job.job_id, job).is_over:
                self.found("a job is cancelled without a request", f"{role} {job.name}")
        if len(strangers) > 1:
            self.found("a sweep sends trials again", str(sorted(strangers)))

    def found(self, kind: str, text: str) -> None:
        self._findings.add(kind, "\n".join([*self.story, "—", text]))

    @staticmethod
    def _quietly(function: Callable[[], None]) -> None:
        """What a person or time does, as far as the damage lets them."""
        with suppress(Exception):  # a database that is none, a folder that is none
            function()
