"""Exit on notice, with a marker file that requests a resubmission."""

from __future__ import annotations

import signal
import threading

from hpcflow.runtime.files import create_marker
from hpcflow.runtime.job import Job
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.warn import warn


def exit_on_notice(job: Job, ranks: Ranks) -> None:
    """Exit, on all ranks together, after the save.

    The file ``resubmit`` requests the resubmission, because torchrun turns every rank's exit code
    into 1.

    Raises:
        SystemExit: always, so that every ``finally`` of the program runs.
    """
    if ranks.rank == 0 and job.attempt_dir is not None:
        try:
            create_marker(job.attempt_dir / "resubmit")
        except OSError as error:
            warn(f"cannot record the request for a resubmission: {error}")
    # A barrier: torchrun ends all ranks once one exits, and the marker must exist by then.
    ranks.max(0)
    ranks.prepare_exit()
    if threading.current_thread() is threading.main_thread():
        # Python drops its handlers while it exits, which takes torch a while: another USR2 would
        # kill the process, and the attempt would count as failed.
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    raise SystemExit(job.exit_code)
