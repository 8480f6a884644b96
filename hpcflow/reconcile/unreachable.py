"""Handle jobs that may still run after their attempt counts as ended.

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
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.files import write_new
from hpcflow.storage.layout import RunDir

#: Causes that Slurm reports without having seen the processes end.
UNSEEN: Final = frozenset({Cause.NODE_FAIL, Cause.VANISHED})


def seal_vanished(run_dir: RunDir, record: JournalRecord) -> bool:
    """Seal the claim of an attempt that has vanished by ``record`` and was never claimed.

    Return False if its job has just claimed it, so it has not vanished.

    Raises:
        StorageError: the claim cannot be written; the end must wait.
    """
    if not (isinstance(record, Ended) and record.raw_state == MISSING):
        return True
    claim = run_dir.attempt(record.attempt).claim
    if claim.exists():
        return True  # it was claimed or sealed before, so no other job will execute it
    try:
        write_new(claim, f"{SEAL}\n".encode())
    except FileExistsError:
        return False
    except FileNotFoundError:
        return True  # without the directory a job cannot claim it either
    except OSError as error:
        raise storage_error("write", claim, error) from error
    return True


def request_checkpoint_exit(run_dir: RunDir, record: JournalRecord) -> None:
    """Write the notice for processes that may still run, if ``record`` ends the attempt unseen.

    Call this before the record is journaled: if hpcflow is killed in between, the next look does
    both. A notice that cannot be written is ignored, because the attempt has ended all the same.
    """
    if isinstance(record, Ended) and record.cause in UNSEEN:
        with suppress(OSError):
            write_new(run_dir.attempt(record.attempt).notice, f"{record.cause.value}\n".encode())
