"""Detect that a later attempt executes the run.

Then this attempt should have ended: Slurm gave up its node, or reported its job as ended. A process
that still runs would publish checkpoints among those of the later attempt, so it saves no more.
"""

from __future__ import annotations

from pathlib import Path

from hpcflow.runtime.job import Job
from hpcflow.runtime.reading import MAX_WORD_BYTES, read_file

#: What hpcflow writes into the claim of a withdrawn attempt, such as a standby that was not needed,
#: so that no job executes it. No scheduler uses this as a job id.
SEAL = "withdrawn"


def successor(job: Job) -> int | None:
    """Return the number of the newest later attempt that a job has claimed; None if there is none.

    A job claims its attempt before it executes anything; a pending attempt has no claim.
    """
    if job.attempt is None or job.attempt_dir is None:
        return None
    try:
        folders = list(job.attempt_dir.parent.iterdir())
    except OSError:
        return None  # saving will report what is wrong with the run directory
    later = [path for path in folders if path.name.isdecimal() and int(path.name) > job.attempt]
    return max((int(path.name) for path in later if _is_claimed(path)), default=None)


def require_no_successor(job: Job) -> None:
    """Check that no later attempt executes the run. Raise OSError if one does."""
    number = successor(job)
    if number is not None:
        raise OSError(
            f"attempt {number} executes this run now; attempt {job.attempt} should have ended"
        )


def _is_claimed(attempt_dir: Path) -> bool:
    try:
        holder = read_file(attempt_dir / "claim", MAX_WORD_BYTES).strip()
    except OSError:
        return False
    return holder not in (b"", SEAL.encode())
