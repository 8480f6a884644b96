"""The locks of a run: at most one process may submit it, and at most one may mirror it.

The submit lock is an ``flock`` on ``submit.lock``. It belongs to the open file, not to the process:
a child ``sbatch`` that inherits the descriptor (``lock.lend()``) holds the lock after its parent
was killed. So while a process holds the lock, no other process is submitting the run.

Some Lustre mounts have no flock. There hpcflow grants the lock and marks it as not reliable. The
job script's claim file still keeps a second job of an attempt from training. Whether a submission
is still running must then be concluded from the age of the intent. Two processes that mirror one
run only send the same bytes twice.

A lock file that cannot be opened, or is a link, raises StorageError.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import (
    SchedulerUnavailable,
    StorageError,
    SubmissionDelayed,
    SubmissionRefused,
    shell_word,
)
from hpcflow.runtime.reading import require_safe
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import FILE_MODE
from hpcflow.storage.layout import RunDir

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
#: How long a command waits for the submit lock. sbatch gives up after about two minutes; a process
#: that holds the lock longer hangs.
LOCK_WAIT_S = 180.0
_POLL_S = 0.05
#: After this wait, hpcflow warns and names the lock.
_SILENT_S = 2.0

_log = logging.getLogger(__name__)


@dataclass
class HeldLock:
    """A lock that is held.

    Attributes:
        fd: open file descriptor for the submitting child to inherit.
        is_reliable: False if the file system has no locks, or for :func:`try_lock`.
        may_be_sending: whether a child process may still be submitting. Then only the end of that
            child releases the lock.
    """

    fd: int
    is_reliable: bool = False
    may_be_sending: bool = False

    @contextmanager
    def lend(self) -> Iterator[int]:
        """Yield the descriptor for a submitting child process to inherit.

        After the child's answer, :meth:`release` unlocks the file, even if a wrapper around sbatch
        left a process that has it open.
        """
        before, self.may_be_sending = self.may_be_sending, True
        try:
            yield self.fd
        except (SubmissionRefused, SubmissionDelayed, SchedulerUnavailable):
            self.may_be_sending = before
            raise
        self.may_be_sending = before

    def release(self) -> None:
        """Close the file; unlock it unless a child may still be submitting."""
        if not self.may_be_sending:
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


@contextmanager
def submit_lock(
    run_dir: RunDir, *, wait_s: float, clock: Clock | None = None, must_be_free: bool = False
) -> Iterator[HeldLock]:
    """Hold the run's submit lock for the length of a ``with`` block.

    Args:
        wait_s: how long to wait for another process; 0 tries once.
        must_be_free: whether no process can be submitting this run, so that waiting for a holder is
            of no use.

    Raises:
        StorageError: another process holds the lock (``retryable`` unless ``must_be_free``).
    """
    lock = HeldLock(_open(run_dir.submit_lock))
    try:
        held = partial(_stuck if must_be_free else _contended, run_dir)
        lock.is_reliable = _acquire(
            lock.fd, run_dir.submit_lock, wait_s, clock or SystemClock(), held
        )
        yield lock
    finally:
        lock.release()


@contextmanager
def lock_shared_file(
    path: Path, within: int, *, wait_s: float, clock: Clock | None = None
) -> Iterator[bool]:
    """Hold the lock on a shared file for a ``with`` block; yield whether the file system has locks.

    Args:
        within: open descriptor of the folder that contains the file.

    Raises:
        StorageError: another process holds it for longer than ``wait_s`` (``retryable``).
    """
    fd = _open(path, within)
    try:
        yield _acquire(fd, path, wait_s, clock or SystemClock(), partial(_busy, path))
    finally:
        os.close(fd)


@contextmanager
def wait_for_lock(path: Path, *, wait_s: float, clock: Clock | None = None) -> Iterator[HeldLock]:
    """Hold the lock on ``path`` for the length of a ``with`` block.

    Raises:
        StorageError: another process holds it for longer than ``wait_s`` (``retryable``).
    """
    lock = HeldLock(_open(path))
    try:
        held = partial(_busy, path)
        lock.is_reliable = _acquire(lock.fd, path, wait_s, clock or SystemClock(), held)
        yield lock
    finally:
        lock.release()


@contextmanager
def try_lock(path: Path) -> Iterator[HeldLock | None]:
    """Hold the lock on ``path`` for the length of a ``with`` block; None if another process does.

    A child process can inherit the open file, and with it the lock. If the file system has no
    locks, the lock is granted.
    """
    lock = HeldLock(_open(path))
    try:
        try:
            _flock(lock.fd, path)
            is_held = True
        except BlockingIOError:
            is_held = False
        yield lock if is_held else None
    finally:
        lock.release()


def has_locks(folder: Path) -> bool:
    """Return whether files in ``folder`` can be locked. Raise StorageError if none can be made."""
    path = folder / f".{secrets.token_hex(8)}.tmp"
    fd = _open(path)
    try:
        return _flock(fd, path)
    finally:
        os.close(fd)
        path.unlink(missing_ok=True)


def _open(path: Path, within: int | None = None) -> int:
    """Open or create a lock file. In a shared folder it must exist, and may be another user's."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with storage_errors("lock", path):
        if within is None:
            fd = os.open(path, flags | os.O_CREAT, FILE_MODE)
        else:
            fd = os.open(path.name, flags, dir_fd=within)
        try:
            require_safe(fd, path, any_owner=within is not None)
        except BaseException:
            os.close(fd)
            raise
    return fd


def _flock(fd: int, path: Path) -> bool:
    """Lock the file, or raise BlockingIOError; return whether the file system has locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise storage_error("lock", path, error) from error
        return False
    return True


def _acquire(
    fd: int, path: Path, wait_s: float, clock: Clock, held: Callable[[], StorageError]
) -> bool:
    """Wait for the lock; return whether the file system has locks."""
    began, has_warned = clock.monotonic(), False
    while True:
        try:
            return _flock(fd, path)
        except BlockingIOError:
            waited_s = clock.monotonic() - began
            if waited_s >= wait_s:
                raise held() from None
            if waited_s >= _SILENT_S and not has_warned:
                has_warned = True
                find = f"fuser -v {shell_word(path)}"
                _log.warning(
                    "another process holds %s: waiting for %.0f s at most; find the process: %s",
                    path,
                    wait_s,
                    find,
                )
        clock.sleep(_POLL_S)


def _contended(run_dir: RunDir) -> StorageError:
    run_id = run_dir.path.name
    error = StorageError(
        f"another process is submitting {run_id} right now",
        next_action=f"check again in a moment: hpcflow show {run_id}",
    )
    error.retryable = True
    return error


def _busy(path: Path) -> StorageError:
    file = shell_word(path)
    error = StorageError(
        f"another process has held {path} for a while",
        next_action=f"try again; if it is still held, find the process: fuser -v {file}",
    )
    error.retryable = True
    return error


def _stuck(run_dir: RunDir) -> StorageError:
    lock = shell_word(run_dir.submit_lock)
    return StorageError(
        f"{run_dir.submit_lock} is held, but no submission of this run was recorded for minutes",
        next_action=f"if it stays held, find the process, on each login node: fuser -v {lock}; if "
        f"no process holds it, the file server has not released it: rm {lock}",
    )
