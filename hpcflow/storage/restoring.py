"""``HPCFLOW_HOME/restoring/<run_id>``: the lock of a running restore, and how the last one ended.

The restoring process locks the file, and the daemon starts no second one. The content describes a
failure, so that the daemon backs off. If it is lost, hpcflow only retries once more.

``<run_id>.cancelled`` exists if the run was cancelled while it had no journal, or during a restore:
docs/architecture.md, section "Cancelling".
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from hpcflow.clock import Clock, from_text, to_text
from hpcflow.errors import HpcflowError, NotFoundError, StorageError
from hpcflow.model.ids import is_run_id
from hpcflow.runtime.reading import parse_object, read_file
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FILE_MODE, fsync_folder, make_folders
from hpcflow.storage.layout import Home

FAILED: Final = "failed"
NOTHING: Final = "nothing"
STARTED: Final = "started"
_CANCELLED: Final = ".cancelled"
_FIRST_WAIT_S: Final = 30.0
_LONGEST_WAIT_S: Final = 600.0
#: Another cluster may have mirrored the run since.
_LOOK_AGAIN: Final = timedelta(days=1)
_CLOCKS_DIFFER: Final = timedelta(hours=2)
_MOST_TRIES: Final = 1_000_000


@dataclass(frozen=True)
class Mark:
    """How the last try to restore a run ended.

    Attributes:
        outcome: FAILED; NOTHING if the store does not have the run; STARTED if a daemon started
            the try, and it has just begun or died without recording an error.
        why: the reason, as text for the user.
        tries: number of failed tries in a row.
    """

    at: datetime
    outcome: str
    why: str
    tries: int = 1

    @property
    def again_at(self) -> datetime:
        """Return the time of the next try."""
        if self.outcome == NOTHING:
            return self.at + _LOOK_AGAIN
        wait_s = _FIRST_WAIT_S * 2.0 ** min(max(0, self.tries - 1), 10)
        return self.at + timedelta(seconds=min(wait_s, _LONGEST_WAIT_S))

    def waits(self, now: datetime) -> bool:
        """Return whether it is too early to retry; ignore a mark from a clock far ahead."""
        return self.at - _CLOCKS_DIFFER <= now < self.again_at


@contextmanager
def restoring(home: Home, run_id: str, clock: Clock, *, is_kept: bool = True) -> Iterator[None]:
    """Hold the lock of a restore for a ``with`` block, and record a failure of the block.

    Args:
        is_kept: whether to record a failure for the daemon. A user's restore may be of another
            checkpoint, or from another store.

    Raises:
        StorageError: another process restores the run (``retryable``).
    """
    path = home.restoring / run_id
    with storage_errors("write", path):
        make_folders(home.restoring)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        if not _lock(descriptor):
            raise _busy(run_id)
        before = _parsed(_content(path))
        try:
            yield
        except HpcflowError as error:
            if not is_kept:
                raise
            outcome = NOTHING if isinstance(error, NotFoundError) else FAILED
            tries = before.tries + 1 if before is not None else 1
            _write(descriptor, Mark(clock.now(), outcome, error.message, tries))
            raise
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(descriptor)


def keep_started(home: Home, run_id: str, clock: Clock) -> None:
    """Record that a restore process was started; the process removes the record if it succeeds."""
    before = read_mark(home, run_id)
    tries = 0 if before is None else before.tries + (before.outcome == STARTED)
    why = f"the restore process ended without an error message; see why: hpcflow restore {run_id}"
    with suppress(OSError):
        make_folders(home.restoring)
        descriptor = os.open(home.restoring / run_id, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            if _lock(descriptor):
                _write(descriptor, Mark(clock.now(), STARTED, why, tries))
        finally:
            os.close(descriptor)


def is_restored_now(home: Home, run_id: str) -> bool:
    """Return whether a process restores the run now; False if the file system has no locks."""
    try:
        descriptor = os.open(home.restoring / run_id, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def read_mark(home: Home, run_id: str) -> Mark | None:
    """Return how the last try ended; None if it succeeded or there was none."""
    return _parsed(_content(home.restoring / run_id))


def keep_cancelled(home: Home, run_id: str) -> None:
    """Store a cancel request for a run that has no journal, or whose journal is being restored."""
    mark = _cancelled(home, run_id)
    with storage_errors("write", mark):
        make_folders(home.restoring)
        mark.touch(mode=FILE_MODE)
        fsync_folder(home.restoring)


def is_cancelled(home: Home, run_id: str) -> bool:
    """Return whether the home stores a cancel request that the journal does not have yet."""
    return _cancelled(home, run_id).exists()


def cancelled_runs(home: Home) -> list[str]:
    """Return the ids of the runs for which the home stores a cancel request, sorted."""
    try:
        names = os.listdir(home.restoring)  # noqa: PTH208 - faster, and called in each tick
    except OSError:
        return []
    ids = [name.removesuffix(_CANCELLED) for name in names if name.endswith(_CANCELLED)]
    return sorted(filter(is_run_id, ids))


def forget_cancelled(home: Home, run_id: str) -> None:
    """Remove the request, which is in the journal now or was withdrawn."""
    mark = _cancelled(home, run_id)
    with storage_errors("remove", mark):
        mark.unlink(missing_ok=True)


def _cancelled(home: Home, run_id: str) -> Path:
    return home.restoring / f"{run_id}{_CANCELLED}"


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _content(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError:
        return b""


def _parsed(data: bytes) -> Mark | None:
    try:
        fields = parse_object(data)
        tries = min(max(0, int(fields["tries"])), _MOST_TRIES)
        return Mark(from_text(fields["at"]), str(fields["outcome"]), str(fields["why"]), tries)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _write(descriptor: int, mark: Mark) -> None:
    fields = {
        "at": to_text(mark.at),
        "outcome": mark.outcome,
        "why": mark.why,
        "tries": mark.tries,
    }
    with suppress(OSError):  # if the record is lost, hpcflow only retries once more
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(fields).encode(), 0)


def _busy(run_id: str) -> StorageError:
    error = StorageError(
        f"another process is restoring {run_id} right now",
        next_action=f"check again in a moment: hpcflow show {run_id}",
    )
    error.retryable = True
    return error
