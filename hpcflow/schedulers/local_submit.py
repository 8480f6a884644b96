"""``python -m hpcflow.schedulers.local_submit``: submit one job through submitit, and print its id.

It runs in a session of its own, so that neither Ctrl-C nor the end of the terminal reaches the job;
it holds the caller's submit lock while a job may still come of it; and it carries the job's mark,
so that from its first moment to the script's last child the job can be seen.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from hpcflow.clock import SystemClock, to_text
from hpcflow.schedulers.local_jobs import LocalJob, create
from hpcflow.schedulers.local_processes import MARK_VARIABLE, this_machine
from hpcflow.schedulers.local_runner import run_script

#: The runner keeps the time limit of the script; submitit wants a number all the same.
_TEN_YEARS_MIN: Final = 10 * 365 * 24 * 60


def main(folder: str, script: str, directory: str, job_name: str) -> None:
    """Create the job below ``folder`` and start it."""
    os.umask(0o077)  # of the job's log and of submitit's files; the job script sets the program's
    answer = _keep_output()
    job = LocalJob(
        job_name=job_name,
        script=script,
        directory=directory,
        submitted_at=to_text(SystemClock().now()),
        mark=os.environ[MARK_VARIABLE],
        **asdict(this_machine()),
    )
    # Imported before the job exists: a submitit that is broken leaves no job behind.
    from submitit import LocalExecutor

    created = create(Path(folder), job)
    executor = LocalExecutor(created.submitit, max_num_timeout=0)
    executor.update_parameters(timeout_min=_TEN_YEARS_MIN, stderr_to_stdout=True)
    executor.submit(run_script, str(created.path))
    os.write(answer, f"{created.job_id}\n".encode())
    os.close(answer)


def _keep_output() -> int:
    """Move stdout and stderr out of the reach of the job's processes, or their reader waits
    for those. What goes wrong here is still told on stderr.
    """
    answer, complaints = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stderr = os.fdopen(complaints, "w", buffering=1)
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
    # The job goes on without us: no destructor of submitit shall think otherwise.
    os._exit(0)
