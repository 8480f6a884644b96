"""A small job that is the daemon: ``sbatch/daemon.sbatch``, filled in for this user and sent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from hpcflow.errors import HpcflowError, InputError, SubmissionRefused
from hpcflow.requeue.install.job_options import checked_options, output_option
from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs
from hpcflow.requeue.install.place import Place
from hpcflow.resources import resource_dir
from hpcflow.schedulers.slurm.run_command import ask, run_submission
from hpcflow.schedulers.slurm.submit import job_from
from hpcflow.settings import Settings
from hpcflow.storage.files import storage_error, write_durably

_LOOK_TIMEOUT_S: Final = 5.0
_TIMEOUT_S: Final = 60.0
_SUBMIT_TIMEOUT_S: Final = 180.0
_PROGRAM: Final = "set -euo pipefail\n"


@dataclass(frozen=True)
class DaemonJob:
    """A job of this user that is the daemon, or waits to be."""

    job_id: str
    state: str


@dataclass(frozen=True)
class SlurmJob:
    """The job, and the script that it and its successors are made from.

    Attributes:
        options: of sbatch, for the job: partition, account and the like.
    """

    place: Place
    variables: Mapping[str, str]
    settings: Settings
    python: str
    options: Sequence[str] = ()
    name: ClassVar[str] = "slurm"

    @property
    def script(self) -> Path:
        """What is sent, filled in."""
        return self.place.folder / f"{self.place.name}.sbatch"

    def plan(self) -> str:
        require_ledger_for_jobs(self.settings)
        return f"{self.script}, then: sbatch {shlex.quote(str(self.script))}\n\n{self._text()}"

    def install(self) -> str:
        require_ledger_for_jobs(self.settings)
        text = self._text()
        self.place.make_folder()
        older = daemon_jobs([self.place.job_name])
        untried = self.script.with_suffix(".new")
        write_durably(untried, text)
        try:
            job_id = self._send(untried)
            untried.replace(self.script)
        finally:
            untried.unlink(missing_ok=True)
        cancel(older)  # the new one has waited for their end
        return f"job {job_id} is in the queue; it says: {self.place.log}"

    def _send(self, script: Path) -> str:
        answer = run_submission(
            ["sbatch", "--parsable", str(script)],
            cwd=self.place.folder,
            timeout_s=_SUBMIT_TIMEOUT_S,
            lock_fd=None,
        )
        try:
            return job_from(answer).job_id
        except SubmissionRefused as error:
            raise InputError(
                error.message,
                next_action="name what the site wants, such as: hpcflow daemon install --slurm "
                "-- --partition=serial --time=12:00:00 --account=physics",
            ) from None

    def uninstall(self) -> str | None:
        if not self.script.exists():
            return None
        found = daemon_jobs([self.place.job_name])
        cancel(found)
        try:
            self.script.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("delete", self.script, error) from error
        jobs = ", ".join(job.job_id for job in found)
        return f"{self.script}" + (f", and its jobs: {jobs}" if jobs else "; it had no job")

    def look(self) -> str | None:
        if not self.script.exists():
            return None
        found = daemon_jobs([self.place.job_name], timeout_s=_LOOK_TIMEOUT_S)
        if not found:
            return f"{self.script}, without a job in the queue; install it again"
        return ", ".join(f"job {job.job_id} ({job.state.lower()})" for job in found)

    def _text(self) -> str:
        variables = {**self.variables, "HPCFLOW_PYTHON": self.python}
        shipped = (resource_dir("sbatch") / "daemon.sbatch").read_text(encoding="utf-8")
        return job_script(shipped, self.place, variables, self.options)


def job_script(
    shipped: str, place: Place, variables: Mapping[str, str], options: Sequence[str]
) -> str:
    """``sbatch/daemon.sbatch`` with a name, a log, options and variables of its own.

    Raises:
        InputError: an option or the path of the log cannot stand there.
    """
    own = [f"--job-name={place.job_name}", output_option(place.log), *checked_options(options)]
    head, program, tail = shipped.partition(_PROGRAM)
    if not program:
        raise HpcflowError(
            "this installation's sbatch/daemon.sbatch is not the one that was shipped",
            next_action="install hpcflow again",
        )
    # Of two options of one name sbatch takes the later one.
    directives = "".join(f"#SBATCH {option}\n" for option in own)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"{head}{directives}{program}{exports}{tail}"


def daemon_jobs(names: Sequence[str], *, timeout_s: float = _TIMEOUT_S) -> list[DaemonJob]:
    """Those of this user's jobs in the queue that bear one of these names; running ones first.

    Raises:
        SchedulerUnavailable: nobody knows.
    """
    argv = ["squeue", "--me", "--noheader", f"--name={','.join(names)}", "--format=%i %T"]
    words = [line.split() for line in ask(argv, timeout_s=timeout_s).splitlines()]
    found = [DaemonJob(each[0], each[1]) for each in words if len(each) == 2]
    return sorted(found, key=lambda job: (job.state == "PENDING", len(job.job_id), job.job_id))


def cancel(jobs: Sequence[DaemonJob]) -> None:
    """End these jobs, those that wait first, lest one of them starts meanwhile.

    Raises:
        SchedulerUnavailable: some may still be there.
    """
    if jobs:
        ask(["scancel", *(job.job_id for job in reversed(jobs))])
