"""Whether a later attempt executes the run by now.

Then this one should be over: its node was given up, its job was said to have ended. It may go on
all the same, and would put its checkpoints among those of the later one. So it saves nothing more.
"""

from __future__ import annotations

from pathlib import Path

from hpcflow.runtime.job import Job
from hpcflow.runtime.reading import MAX_WORD_BYTES, read_file

#: What the login side writes into the claim of an attempt that nobody may execute any more: one
#: that was withdrawn, such as a standby that was not needed. No scheduler calls a job so.
SEAL = "withdrawn"


def successor(job: Job) -> int | None:
    """The number of the newest attempt after this one that a job has claimed, if there is one.

    A claim is what a job makes before it executes anything; an attempt that only waits has none.
    """
    if job.attempt is None or job.attempt_dir is None:
        return None
    try:
        folders = list(job.attempt_dir.parent.iterdir())
    except OSError:
        return None  # whatever is wrong with the run directory, saving will say it
    later = [path for path in folders if path.name.isdecimal() and int(path.name) > job.attempt]
    return max((int(path.name) for path in later if _is_claimed(path)), default=None)


def require_no_successor(job: Job) -> None:
    """Make sure that no later attempt executes the run.

    Raises:
        OSError: one does.
    """
    number = successor(job)
    if number is not None:
        raise OSError(
            f"attempt {number} executes this run now, and attempt {job.attempt} should be over"
        )


def _is_claimed(attempt_dir: Path) -> bool:
    try:
        holder = read_file(attempt_dir / "claim", MAX_WORD_BYTES).strip()
    except OSError:
        return False
    return holder not in (b"", SEAL.encode())
