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

from hpcflow.model.journal import Ended
from hpcflow.model.state import MISSING, Cause
from hpcflow.runtime.successor import SEAL
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.files import write_new
from hpcflow.storage.layout import RunDir

#: Causes that Slurm reports without having seen the processes end.
UNSEEN: Final = frozenset({Cause.NODE_FAIL, Cause.VANISHED})


def prepare_end(run_dir: RunDir, ended: Ended) -> bool:
    """Do what precedes the record of an end; return False if the attempt has not ended.

    If hpcflow is killed before the record, the next look decides the same, and does both.

    Raises:
        StorageError: as :func:`_seal_vanished`.
    """
    if not _seal_vanished(run_dir, ended):
        return False
    request_checkpoint_exit(run_dir, ended)
    return True


def _seal_vanished(run_dir: RunDir, ended: Ended) -> bool:
    """Seal the claim of an attempt that has vanished by ``ended`` and was never claimed.

    Return False if its job has just claimed it, so it has not vanished.

    Raises:
        StorageError: the claim cannot be written; the end must wait.
    """
    if ended.raw_state != MISSING:
        return True
    claim = run_dir.attempt(ended.attempt).claim
    if claim.exists():
        return True  # it was claimed or sealed before, so no other job will execute it
    try:
        write_new(claim, f"{SEAL}\n".encode())
    except FileExistsError:
        return False
    except FileNotFoundError:
        return True  # a job cannot claim it either; it is sealed before another attempt is sent
    except OSError as error:
        raise storage_error("write", claim, error) from error
    return True


def request_checkpoint_exit(run_dir: RunDir, ended: Ended) -> None:
    """Write the notice for processes that may still run, if Slurm did not see the attempt end.

    Call this before the record is journaled, as for :func:`prepare_end`. A notice that cannot be
    written is ignored, because the attempt has ended all the same.
    """
    if ended.cause in UNSEEN:
        with suppress(OSError):
            write_new(run_dir.attempt(ended.attempt).notice, f"{ended.cause.value}\n".encode())
