"""Handle jobs that may live on after their attempt counts as ended.

A node that slurmctld lost may still run: if only its network or its slurmd is down, the job's
processes keep writing to scratch. Slurm cannot be asked about them, but they share scratch with the
login nodes. So hpcflow writes the notice file when it journals the end. Processes that still run
save and exit within seconds, long before the next attempt is submitted (``retry.backoff``).

A job that has vanished may still be pending, if squeue left it out. Its attempt's claim is sealed,
so that it exits when it starts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from hpcflow.model.journal import Ended, JournalRecord
from hpcflow.model.state import MISSING, Cause
from hpcflow.runtime.successor import SEAL
from hpcflow.storage.files import storage_error, write_new
from hpcflow.storage.layout import RunDir

#: Ends that Slurm tells of without having seen the processes end.
UNSEEN: Final = frozenset({Cause.NODE_FAIL, Cause.VANISHED})


def seal_vanished(run_dir: RunDir, record: JournalRecord) -> bool:
    """Seal the attempt of a job that has vanished, if ``record`` says so and it has not begun.

    Returns:
        False where its job has begun at this very moment: it has not vanished.

    Raises:
        StorageError: the seal could not be written; the end must wait.
    """
    if not (isinstance(record, Ended) and record.raw_state == MISSING):
        return True
    claim = run_dir.attempt(record.attempt).claim
    if claim.exists():
        return True  # it began, or was sealed before: no other job of it will
    try:
        write_new(claim, f"{SEAL}\n".encode())
    except FileExistsError:
        return False
    except FileNotFoundError:
        return True  # nor can a job of it write its claim
    except OSError as error:
        raise storage_error("write", claim, error) from error
    return True


def request_checkpoint_exit(run_dir: RunDir, record: JournalRecord) -> None:
    """Leave the notice for what may live on, if ``record`` ends an attempt unseen.

    Before the record is journaled: a process that is killed in between comes to the same end the
    next time. Where it cannot be written nobody is worse off: the end is an end all the same.
    """
    if isinstance(record, Ended) and record.cause in UNSEEN:
        with suppress(OSError):
            write_new(run_dir.attempt(record.attempt).notice, f"{record.cause.value}\n".encode())
