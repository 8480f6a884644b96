"""What is told to a job whose node Slurm has given up.

A node that slurmctld does not hear of any more need not be dead: its network or its slurmd can be
gone, while the job's processes go on writing to scratch until somebody who can reach them ends
them. Nobody can ask; but scratch is common to all. So the file of the notice is left there when the
attempt is taken for ended: whatever still runs saves and leaves within seconds, long before the
next attempt is sent (``retry.backoff``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from hpcflow.model.journal import Ended, JournalRecord
from hpcflow.model.state import Cause
from hpcflow.storage.files import write_new
from hpcflow.storage.layout import RunDir

#: Ends that Slurm tells of without having seen the processes end.
UNSEEN: Final = frozenset({Cause.NODE_FAIL, Cause.VANISHED})


def tell_to_leave(run_dir: RunDir, record: JournalRecord) -> None:
    """Leave the notice for what may live on, if ``record`` ends an attempt unseen.

    Before the record is journaled: a process that is killed in between comes to the same end the
    next time. Where it cannot be written nobody is worse off: the end is an end all the same.
    """
    if isinstance(record, Ended) and record.cause in UNSEEN:
        with suppress(OSError):
            write_new(run_dir.attempt(record.attempt).notice, f"{record.cause.value}\n".encode())
