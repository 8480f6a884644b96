"""Submit the daemon as a small job: ``sbatch/daemon.sbatch``, filled in for this user."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import (
    HpcflowError,
    InputError,
    SchedulerUnavailable,
    SubmissionInDoubt,
    SubmissionRefused,
    Where,
)
from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs
from hpcflow.requeue.install.place import Place
from hpcflow.resources import resource_dir
from hpcflow.schedulers.slurm.run_command import ask, run_query, run_submission, unavailable
from hpcflow.schedulers.slurm.submit import job_from
from hpcflow.settings import Settings
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import write_durably

_LOOK_TIMEOUT_S: Final = 5.0
_TIMEOUT_S: Final = 60.0
_SUBMIT_TIMEOUT_S: Final = 180.0
#: Pauses after each scancel: slurmctld may be slow to end a job.
_PAUSES_S: Final = (0.2, 1.0, 2.0, 4.0, 8.0)
#: What sbatch needs to start and authenticate. Other variables, such as secrets, are not passed on.
_SBATCH_NEEDS: Final = ("LD_LIBRARY_PATH", "KRB5CCNAME", "SLURM_JWT")
_PROGRAM: Final = "set -euo pipefail\n"


class DaemonJobsUnknownError(SchedulerUnavailable):
    """Slurm does not answer, and no file shows that a daemon job was ever installed here."""


@dataclass(frozen=True)
class DaemonJob:
    job_id: str
    state: str

    @property
    def is_ending(self) -> bool:
        return self.state == "COMPLETING"


@dataclass(frozen=True)
class SlurmJob:
    """The job, and the script for it and its successors.

    Attributes:
        options: of sbatch, for the job: partition, account and the like.
    """

    place: Place
    variables: Mapping[str, str]
    settings: Settings
    python: str
    options: Sequence[str] = ()
    clock: Clock = field(default_factory=SystemClock)
    name: ClassVar[str] = "slurm"

    @property
    def script(self) -> Path:
        return self.place.folder / f"{self.place.name}.sbatch"

    @property
    def _untried(self) -> Path:
        """Return its path before Slurm has accepted it; it remains if hpcflow is killed then."""
        return self.script.with_suffix(".new")

    @property
    def _scripts(self) -> list[Path]:
        return [path for path in (self.script, self._untried) if path.exists()]

    def plan(self) -> str:
        require_ledger_for_jobs(self.settings)
        return f"{self.script}, then: sbatch {shlex.quote(str(self.script))}\n\n{self._text()}"

    def require_allowed(self) -> None:
        require_ledger_for_jobs(self.settings)
        if shutil.which("sbatch") is None:
            raise InputError("no sbatch on this machine", next_action="log in to the cluster")

    def install(self) -> str:
        require_ledger_for_jobs(self.settings)
        text = self._text()
        self.place.make_folder()
        write_durably(self._untried, text)
        try:
            job_id = self._send(self._untried)
        except SubmissionInDoubt as error:
            self._untried.replace(self.script)  # its job may exist and must be found
            raise SubmissionInDoubt(
                error.message, next_action="install it again, which ends that job if there is one"
            ) from None
        except HpcflowError:
            self._untried.unlink(missing_ok=True)
            raise
        self._untried.replace(self.script)
        # The new job is pending until these have ended.
        end_jobs(self.place.job_name, self.clock, except_for=job_id)
        return f"job {job_id} is in the queue; its log: {self.place.log}"

    def _send(self, script: Path) -> str:
        needed = {name: os.environ[name] for name in _SBATCH_NEEDS if name in os.environ}
        answer = run_submission(
            ["sbatch", "--parsable", str(script)],
            cwd=self.place.folder,
            timeout_s=_SUBMIT_TIMEOUT_S,
            lock_fd=None,
            environment={**needed, **self.variables},
        )
        try:
            return job_from(answer).job_id
        except SubmissionRefused as error:
            raise InputError(
                error.message,
                next_action="add what the site requires, such as: hpcflow daemon install --slurm "
                "-- --partition=serial --time=12:00:00 --account=physics",
            ) from None

    def uninstall(self) -> str | None:
        scripts = self._scripts
        try:
            if not scripts and not self._jobs_without_script():
                return None
        except SchedulerUnavailable as error:
            raise DaemonJobsUnknownError(error.message, next_action=error.next_action) from None
        ended = end_jobs(self.place.job_name, self.clock)
        with storage_errors("delete", self.script):
            for script in scripts:
                script.unlink(missing_ok=True)
        jobs = ", ".join(job.job_id for job in ended)
        what = ", ".join(map(str, scripts)) or "a daemon without a script here"
        return what + (f", and its jobs: {jobs}" if jobs else "; it had no job")

    def look(self) -> str | None:
        scripts = self._scripts
        if not scripts:
            found = []
            with suppress(SchedulerUnavailable):  # usually there is none
                found = self._jobs_without_script()
            if not found:
                return None
        else:
            found = daemon_jobs([self.place.job_name], timeout_s=_LOOK_TIMEOUT_S)
        if not found:
            return f"{scripts[0]}, without a job in the queue; install it again"
        return ", ".join(f"job {job.job_id} ({job.state.lower()})" for job in found)

    def _jobs_without_script(self) -> list[DaemonJob]:
        """Return jobs submitted by hand; none without Slurm."""
        if shutil.which("squeue") is None:
            return []
        return daemon_jobs([self.place.job_name], timeout_s=_LOOK_TIMEOUT_S)

    def _text(self) -> str:
        variables = {**self.variables, "HPCFLOW_PYTHON": self.python}
        shipped = (resource_dir("sbatch") / "daemon.sbatch").read_text(encoding="utf-8")
        return job_script(shipped, self.place, variables, self.options)


def job_script(
    shipped: str, place: Place, variables: Mapping[str, str], options: Sequence[str]
) -> str:
    """Return ``sbatch/daemon.sbatch`` with a name, a log, options and variables.

    Raises:
        InputError: an option or the path of the log cannot be written there.
    """
    own = [f"--job-name={place.job_name}", output_option(place.log), *checked_options(options)]
    head, program, tail = shipped.partition(_PROGRAM)
    if not program:
        raise HpcflowError(
            "this installation's sbatch/daemon.sbatch was changed",
            next_action="install hpcflow again",
        )
    # If an option is given twice, sbatch uses the later one.
    directives = "".join(f"#SBATCH {option}\n" for option in own)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"{head}{directives}{program}{exports}{tail}"


def daemon_jobs(names: Sequence[str], *, timeout_s: float = _TIMEOUT_S) -> list[DaemonJob]:
    """Return this user's queued jobs with one of these names, without those that are completing;
    running ones first."""
    return _alive(_in_queue(names, timeout_s))


def _in_queue(names: Sequence[str], timeout_s: float = _TIMEOUT_S) -> list[DaemonJob]:
    argv = ["squeue", "--me", "--all", "--noheader", f"--name={','.join(names)}", "--format=%i %T"]
    words = [line.split() for line in ask(argv, timeout_s=timeout_s).splitlines()]
    found = [DaemonJob(*each) for each in words if len(each) == 2]
    return sorted(found, key=lambda job: (job.state == "PENDING", len(job.job_id), job.job_id))


def end_jobs(name: str, clock: Clock, *, except_for: str | None = None) -> list[DaemonJob]:
    """Cancel the jobs of this name, pending ones first, so that none starts meanwhile; return them.

    Repeats until there is none: a job may submit its successor before it ends.

    Args:
        except_for: a job that is kept, with the jobs that it has submitted.

    Raises:
        SchedulerUnavailable: some may still be there.
    """
    ended: dict[str, DaemonJob] = {}
    found = _without(_in_queue([name]), except_for)
    answer = None
    for pause_s in _PAUSES_S:
        if not found:
            return list(ended.values())
        if alive := _alive(found):
            ended.update((job.job_id, job) for job in alive)
            answer = run_query(["scancel", *(job.job_id for job in reversed(alive))])
        clock.sleep(pause_s)
        found = _without(_in_queue([name]), except_for)
    alive = _alive(found)  # a job may be completing for very long
    if not alive:
        return list(ended.values())
    # Only now: scancel also reports an error for a job that has just ended.
    if answer is not None and answer.exit_code != 0:
        raise unavailable(answer)
    raise SchedulerUnavailable(
        f"these jobs are still there after scancel: {', '.join(job.job_id for job in alive)}",
        next_action=f"see: squeue --me --name={name}; then try again",
    )


def _alive(jobs: Sequence[DaemonJob]) -> list[DaemonJob]:
    return [job for job in jobs if not job.is_ending]


def _without(jobs: Sequence[DaemonJob], kept: str | None) -> list[DaemonJob]:
    others = [job for job in jobs if job.job_id != kept]
    if kept is None or DaemonJob(kept, "PENDING") in jobs:
        return others  # a pending job has submitted none
    return [job for job in others if _number(job.job_id) < _number(kept)]


def _number(job_id: str) -> int:
    digits = job_id.partition("_")[0]
    return int(digits) if digits.isdecimal() else 0


#: Options that hpcflow sets: the chain of jobs and the log depend on them.
_OURS: Final = (
    *("--job-name", "--dependency", "--array", "--export", "--export-file", "--wrap", "--begin"),
    *("--clusters", "--output", "--open-mode", "--signal"),
)


def checked_options(options: Sequence[str]) -> list[str]:
    """Return ``options``, if each can be written on such a line.

    Raises:
        InputError: one is not an option, has white space, quotes and the like, or is one that
            hpcflow sets.
    """
    for option in options:
        if not option.startswith("--") or "=" not in option:
            raise InputError(
                f"not an sbatch option in one word: {option[:200]!r}",
                next_action="write it like --partition=serial, after `--`",
            )
        _check(option)
        name = option.partition("=")[0]
        # sbatch accepts unique prefixes of options.
        ours = next((each for each in _OURS if each.startswith(name)), None)
        if ours is not None:
            raise InputError(
                f"{name} cannot be set: with another {ours} its jobs would not follow each "
                "other, or not be found again",
                next_action="leave it out; allowed: partition, account, qos, time, mem and others",
            )
    return list(options)


def output_option(log: Path) -> str:
    """Return ``--output`` for a log, with ``%`` escaped: it begins a pattern in Slurm.

    Raises:
        InputError: the path cannot be written on such a line.
    """
    _check(str(log))
    return f"--output={str(log).replace('%', '%%')}"


def _check(text: str) -> None:
    from hpcflow.rendering.quoting import UnquotedError, directive  # jinja2: only to install

    try:
        directive(text)
    except UnquotedError:
        raise InputError(
            f"cannot be written in a job script's options: {text[:200]!r}",
            where=Where(key="HPCFLOW_HOME") if text.startswith("/") else None,
            next_action="use only ASCII, without blanks, quotes and any of # $ \\ `",
        ) from None
