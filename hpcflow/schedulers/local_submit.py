"""``python -m hpcflow.schedulers.local_submit``: submit one job through submitit, and print its id.

It runs in its own session, so that neither Ctrl-C nor the end of the terminal reaches the job. It
holds the caller's submit lock while it may still create a job. It has the job's mark, so that the
job is visible from the start.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from hpcflow.clock import SystemClock, to_text
from hpcflow.schedulers.local_jobs import MARK_VARIABLE, LocalJob, create, this_machine
from hpcflow.schedulers.local_runner import run_script

#: The runner enforces the script's time limit; submitit requires a number anyway.
_TEN_YEARS_MIN: Final = 10 * 365 * 24 * 60


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
    from submitit import LocalExecutor

    created = create(Path(folder), job)
    executor = LocalExecutor(created.submitit, max_num_timeout=0)
    executor.update_parameters(timeout_min=_TEN_YEARS_MIN, stderr_to_stdout=True)
    executor.submit(run_script, str(created.path))
    os.write(answer, f"{created.job_id}\n".encode())
    os.close(answer)


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
    # Skip submitit's destructors: the job continues without this process.
    os._exit(0)
