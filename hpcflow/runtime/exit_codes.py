"""Exit on notice: the marker "resubmit me", and the exit code."""

from __future__ import annotations

import signal
import threading

from hpcflow.runtime.files import create_marker
from hpcflow.runtime.job import Job
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.warn import warn


def exit_on_notice(job: Job, ranks: Ranks) -> None:
    """End this process, on all ranks together, after everything was saved.

    The file ``resubmit`` carries the word, since torchrun makes a 1 of every rank's exit code.

    Raises:
        SystemExit: always, so that every ``finally`` of the program runs.
    """
    if ranks.rank == 0 and job.attempt_dir is not None:
        try:
            create_marker(job.attempt_dir / "resubmit")
        except OSError as error:
            warn(f"cannot record the request to be resubmitted: {error}")
    # No rank may be gone before the word is there: torchrun ends all when it sees the first leave.
    ranks.max(0)
    ranks.leave()
    if threading.current_thread() is threading.main_thread():
        # Another notice changes nothing any more. Python gives up its handlers while it ends, which
        # takes torch a while: the next USR2 would kill the process, and that would be a failure.
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    raise SystemExit(job.exit_code)
