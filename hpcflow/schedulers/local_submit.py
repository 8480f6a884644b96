"""``python -m hpcflow.schedulers.local_submit``: submit one job through submitit, and print its id.

It runs in its own session, so that neither Ctrl-C nor the end of the terminal reaches the job. It
holds the caller's submit lock while it may still create a job. It has the job's mark, so that the
job is visible from the start.

Its child is submitit's controller of the job, which starts the supervisor of local_runner.py.
submitit's executor would start two Pythons more for that, each of which imports submitit again, and
one numpy too: that takes longer than a small job.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from hpcflow.clock import SystemClock, to_text
from hpcflow.schedulers.local_jobs import (
    MARK_VARIABLE,
    JobFolder,
    LocalJob,
    create,
    this_machine,
)

if TYPE_CHECKING:
    from submitit.local.local import Controller

#: The supervisor enforces the script's time limit; submitit requires a number anyway.
_TEN_YEARS_S: Final = 10 * 365 * 24 * 60 * 60


def main(folder: str, script: str, directory: str, job_name: str) -> None:
    """Create the job below ``folder`` and start it."""
    os.umask(0o077)  # for the log and submitit's files; the job script sets the program's umask
    answer = _detach_output()
    job = LocalJob(
        job_name=job_name,
        script=script,
        directory=directory,
        submitted_at=to_text(SystemClock().now()),
        mark=os.environ[MARK_VARIABLE],
        **asdict(this_machine()),
    )
    # Imported before the job exists, so that a broken submitit leaves no job.
    from submitit.local.local import Controller

    created = create(Path(folder), job)
    until_exit, kept_open = os.pipe()
    if os.fork() == 0:
        # At its end, the job kills all processes that have its mark, and so has this one's parent.
        os.close(kept_open)
        os.read(until_exit, 1)  # returns when the parent has exited
        _control(created, Controller)
    os.write(answer, f"{created.job_id}\n".encode())
    os.close(answer)


def _control(job: JobFolder, controller: type[Controller]) -> NoReturn:
    """Be submitit's controller of the job until the job has ended."""
    try:
        _close_files()
        supervisor = [sys.executable, "-m", "hpcflow.schedulers.local_runner", str(job.path)]
        os.environ.update(
            SUBMITIT_LOCAL_COMMAND=shlex.join(supervisor),
            SUBMITIT_LOCAL_NTASKS="1",
            SUBMITIT_LOCAL_SIGNAL_DELAY_S="0",
            SUBMITIT_LOCAL_TIMEOUT_S=str(_TEN_YEARS_S),
            SUBMITIT_LOCAL_WITH_SHELL="",
            SUBMITIT_STDERR_TO_STDOUT="1",
        )
        controller(job.submitit).run()
    finally:
        os._exit(0)  # the parent's code is not for this process


def _close_files() -> None:
    """Close all files but stdin, stdout and stderr: the answer to the caller, and its lock."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2:
            with suppress(OSError):  # the one of this listing
                os.close(int(entry.name))
    sys.stderr = sys.__stderr__


def _detach_output() -> int:
    """Detach stdout and stderr, else the caller waits for the job; return a copy of stdout."""
    answer, errors = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stderr = os.fdopen(errors, "w", buffering=1)
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
