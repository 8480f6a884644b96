"""``HPCFLOW_HOME/restoring/<run_id>``: who restores a run now, and how the last restore ended.

The restoring process locks the file for as long; the daemon starts nobody beside them. What it
says is about a failure, so that the daemon waits before it tries again. It is no fact about the
run: if it is lost, hpcflow only tries once more.

``<run_id>.cancelled`` beside it: the run was cancelled while it had no journal, or while it was
restored. The first command that finds a journal records the request there:
``launch/cancel.py::record_kept``.
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
from hpcflow.storage.files import FILE_MODE, fsync_folder, make_folders, storage_error
from hpcflow.storage.layout import Home

FAILED: Final = "failed"
NOTHING: Final = "nothing"
STARTED: Final = "started"
_CANCELLED: Final = ".cancelled"
_FIRST_WAIT_S: Final = 30.0
_LONGEST_WAIT_S: Final = 600.0
#: What was not in the store yesterday may be there today: another cluster has mirrored it since.
_LOOK_AGAIN: Final = timedelta(days=1)
_CLOCKS_DIFFER: Final = timedelta(hours=2)
_MOST_TRIES: Final = 1_000_000


@dataclass(frozen=True)
class Mark:
    """How the last try to restore a run ended.

    Attributes:
        outcome: FAILED; NOTHING: the store does not have it; STARTED by a daemon, and either it
            has only just begun, or it died without a word.
        why: for people.
        tries: how often in a row it ended so.
    """

    at: datetime
    outcome: str
    why: str
    tries: int = 1

    @property
    def again_at(self) -> datetime:
        """When it is worth to try again."""
        if self.outcome == NOTHING:
            return self.at + _LOOK_AGAIN
        wait_s = _FIRST_WAIT_S * 2.0 ** min(max(0, self.tries - 1), 10)
        return self.at + timedelta(seconds=min(wait_s, _LONGEST_WAIT_S))

    def waits(self, now: datetime) -> bool:
        """Return whether it is too early to retry; ignore a mark from a clock far ahead."""
        return self.at - _CLOCKS_DIFFER <= now < self.again_at


@contextmanager
def restoring(home: Home, run_id: str, clock: Clock, *, is_kept: bool = True) -> Iterator[None]:
    """Restore a run alone for the length of a ``with`` block.

    Args:
        is_kept: whether what goes wrong is kept for the daemon. What a person asks for may be
            another checkpoint, or another store.

    Raises:
        StorageError: somebody else is at it (``retryable``), or the home cannot be written.
    """
    path = home.restoring / run_id
    try:
        make_folders(home.restoring)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise storage_error("write", path, error) from error
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
    """Remember that a process was started for a run, which takes this back when it ends well."""
    before = read_mark(home, run_id)
    tries = 0 if before is None else before.tries + (before.outcome == STARTED)
    why = f"what was started for it ended without a word; see why: hpcflow restore {run_id}"
    with suppress(OSError):
        make_folders(home.restoring)
        descriptor = os.open(home.restoring / run_id, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            if _lock(descriptor):
                _write(descriptor, Mark(clock.now(), STARTED, why, tries))
        finally:
            os.close(descriptor)


def is_restored_now(home: Home, run_id: str) -> bool:
    """Whether somebody is at it. Where the file system has no locks, nobody seems to be."""
    try:
        descriptor = os.open(home.restoring / run_id, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def read_mark(home: Home, run_id: str) -> Mark | None:
    """How the last try ended; None where none did, or where it ended well."""
    return _parsed(_content(home.restoring / run_id))


def keep_cancelled(home: Home, run_id: str) -> None:
    """Store a cancel request for a run that has no journal, or whose journal is being restored.

    Raises:
        StorageError: it could not be written.
    """
    mark = _cancelled(home, run_id)
    try:
        make_folders(home.restoring)
        mark.touch(mode=FILE_MODE)
        fsync_folder(home.restoring)
    except OSError as error:
        raise storage_error("write", mark, error) from error


def is_cancelled(home: Home, run_id: str) -> bool:
    """Return whether the home stores a cancel request that the journal does not have yet."""
    return _cancelled(home, run_id).exists()


def cancelled_runs(home: Home) -> list[str]:
    """Return the ids of the runs for which the home stores a cancel request, sorted."""
    try:
        names = os.listdir(home.restoring)  # noqa: PTH208 - at each look
    except OSError:
        return []
    ids = [name.removesuffix(_CANCELLED) for name in names if name.endswith(_CANCELLED)]
    return sorted(filter(is_run_id, ids))


def forget_cancelled(home: Home, run_id: str) -> None:
    """Remove the request: it is in the journal now, or was taken back.

    Raises:
        StorageError: it cannot be removed.
    """
    mark = _cancelled(home, run_id)
    try:
        mark.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error("remove", mark, error) from error


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
        said = parse_object(data)
        tries = min(max(0, int(said["tries"])), _MOST_TRIES)
        return Mark(from_text(said["at"]), str(said["outcome"]), str(said["why"]), tries)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _write(descriptor: int, mark: Mark) -> None:
    said = {
        "at": to_text(mark.at),
        "outcome": mark.outcome,
        "why": mark.why,
        "tries": mark.tries,
    }
    with suppress(OSError):  # if it is lost, hpcflow only tries once more
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(said).encode(), 0)


def _busy(run_id: str) -> StorageError:
    error = StorageError(
        f"another process is restoring {run_id} right now",
        next_action=f"look in a moment: hpcflow show {run_id}",
    )
    error.retryable = True
    return error
