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
)
from hpcflow.requeue.install.job_options import checked_options, output_option
from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs
from hpcflow.requeue.install.place import Place
from hpcflow.resources import resource_dir
from hpcflow.schedulers.slurm.run_command import ask, run_query, run_submission, unavailable
from hpcflow.schedulers.slurm.submit import job_from
from hpcflow.settings import Settings
from hpcflow.storage.files import storage_error, write_durably

_LOOK_TIMEOUT_S: Final = 5.0
_TIMEOUT_S: Final = 60.0
_SUBMIT_TIMEOUT_S: Final = 180.0
#: After each scancel, until nothing is left to end: slurmctld may be slow to end a job.
_PAUSES_S: Final = (0.2, 1.0, 2.0, 4.0, 8.0)
#: By which sbatch starts and says who sends. All else, secrets among it, no job shall hand on.
_SBATCH_NEEDS: Final = ("LD_LIBRARY_PATH", "KRB5CCNAME", "SLURM_JWT")
_PROGRAM: Final = "set -euo pipefail\n"


class NobodyKnowsError(SchedulerUnavailable):
    """Slurm is silent, and nothing here says that there ever was a job of ours."""


@dataclass(frozen=True)
class DaemonJob:
    """A job of this user that is the daemon, or waits to be."""

    job_id: str
    state: str

    @property
    def is_ending(self) -> bool:
        """Whether it is over but for its last processes."""
        return self.state == "COMPLETING"


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
    clock: Clock = field(default_factory=SystemClock)
    name: ClassVar[str] = "slurm"

    @property
    def script(self) -> Path:
        """What is sent, filled in."""
        return self.place.folder / f"{self.place.name}.sbatch"

    @property
    def _untried(self) -> Path:
        """The same, before Slurm has taken it. Who is killed meanwhile leaves it, and its job."""
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
            self._untried.replace(self.script)  # its job may live, and is to be found
            raise SubmissionInDoubt(
                error.message, next_action="install it again, which ends that job if there is one"
            ) from None
        except HpcflowError:
            self._untried.unlink(missing_ok=True)
            raise
        self._untried.replace(self.script)
        # The new one has waited for their end.
        end_jobs(self.place.job_name, self.clock, except_for=job_id)
        return f"job {job_id} is in the queue; it says: {self.place.log}"

    def _send(self, script: Path) -> str:
        answer = run_submission(
            ["sbatch", "--parsable", str(script)],
            cwd=self.place.folder,
            timeout_s=_SUBMIT_TIMEOUT_S,
            lock_fd=None,
            environment={**_of_sbatch(os.environ), **self.variables},
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
        scripts = self._scripts
        try:
            if not scripts and not self._jobs_without_script():
                return None
        except SchedulerUnavailable as error:
            raise NobodyKnowsError(error.message, next_action=error.next_action) from None
        ended = end_jobs(self.place.job_name, self.clock)
        try:
            for script in scripts:
                script.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("delete", self.script, error) from error
        jobs = ", ".join(job.job_id for job in ended)
        what = ", ".join(map(str, scripts)) or "what had no script here"
        return what + (f", and its jobs: {jobs}" if jobs else "; it had no job")

    def look(self) -> str | None:
        scripts = self._scripts
        if not scripts:
            found = []
            with suppress(SchedulerUnavailable):  # as a rule none is there
                found = self._jobs_without_script()
            if not found:
                return None
        else:
            found = daemon_jobs([self.place.job_name], timeout_s=_LOOK_TIMEOUT_S)
        if not found:
            return f"{scripts[0]}, without a job in the queue; install it again"
        return ", ".join(f"job {job.job_id} ({job.state.lower()})" for job in found)

    def _jobs_without_script(self) -> list[DaemonJob]:
        """Such as are sent by hand; none where there is no Slurm."""
        if shutil.which("squeue") is None:
            return []
        return daemon_jobs([self.place.job_name], timeout_s=_LOOK_TIMEOUT_S)

    def _text(self) -> str:
        variables = {**self.variables, "HPCFLOW_PYTHON": self.python}
        shipped = (resource_dir("sbatch") / "daemon.sbatch").read_text(encoding="utf-8")
        return job_script(shipped, self.place, variables, self.options)


def _of_sbatch(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in _SBATCH_NEEDS if name in environ}


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

    Not those that end already.

    Raises:
        SchedulerUnavailable: nobody knows.
    """
    return _alive(_in_queue(names, timeout_s))


def _in_queue(names: Sequence[str], timeout_s: float = _TIMEOUT_S) -> list[DaemonJob]:
    argv = ["squeue", "--me", "--all", "--noheader", f"--name={','.join(names)}", "--format=%i %T"]
    words = [line.split() for line in ask(argv, timeout_s=timeout_s).splitlines()]
    found = [DaemonJob(*each) for each in words if len(each) == 2]
    return sorted(found, key=lambda job: (job.state == "PENDING", len(job.job_id), job.job_id))


def end_jobs(name: str, clock: Clock, *, except_for: str | None = None) -> list[DaemonJob]:
    """End the jobs of this name, those that wait first, lest one of them starts meanwhile.

    Looks again until there is none: one that is about to end may send another.

    Args:
        except_for: this one, and those that it has sent itself.

    Returns:
        Those that were there.

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
    alive = _alive(found)  # a node may take for ever to get done with a job that is over
    if not alive:
        return list(ended.values())
    # It complains of a job that has just ended, too: only now is it known that it meant it.
    if answer is not None and answer.exit_code != 0:
        raise unavailable(answer)
    raise SchedulerUnavailable(
        f"these jobs are still there after scancel: {', '.join(job.job_id for job in alive)}",
        next_action=f"look at them: squeue --me --name={name}; then try once more",
    )


def _alive(jobs: Sequence[DaemonJob]) -> list[DaemonJob]:
    return [job for job in jobs if not job.is_ending]


def _without(jobs: Sequence[DaemonJob], kept: str | None) -> list[DaemonJob]:
    others = [job for job in jobs if job.job_id != kept]
    if kept is None or DaemonJob(kept, "PENDING") in jobs:
        return others  # who waits has sent none
    return [job for job in others if _number(job.job_id) < _number(kept)]


def _number(job_id: str) -> int:
    digits = job_id.partition("_")[0]
    return int(digits) if digits.isdecimal() else 0
