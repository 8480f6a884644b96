"""How a program leaves on notice: the word "send me again", and the exit code."""

from __future__ import annotations

from hpcflow.runtime.job import Job
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.warn import warn


def leave(job: Job, ranks: Ranks) -> None:
    """End this process, on all ranks together, after everything was saved.

    The file ``resubmit`` carries the word, since torchrun makes a 1 of every rank's exit code.

    Raises:
        SystemExit: always, so that every ``finally`` of the program runs.
    """
    if ranks.rank == 0 and job.attempt_dir is not None:
        try:
            (job.attempt_dir / "resubmit").touch()
        except OSError as error:
            warn(f"cannot leave the word to be sent again: {error}")
    # No rank may be gone before the word is there: torchrun ends all when it sees the first leave.
    ranks.max(0)
    ranks.leave()
    raise SystemExit(job.exit_code)
