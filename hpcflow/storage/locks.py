"""The locks of a run: at most one process may be creating a job of it, and one mirroring it.

The submit lock is an ``flock`` on ``submit.lock``, and it belongs to the open file, not to the
process: a child ``sbatch`` that inherits the descriptor (``lock.lend()``) keeps it after its parent
was killed. So a process that gets the lock knows that nobody is still sending.

Some Lustre mounts know no flock. There the lock is granted all the same, marked as not reliable:
the job script's claim file still keeps a second job of an attempt from training, but "nobody is
sending" must then be concluded from the age of the intent; and two who mirror one run send the same
bytes twice, no more.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
from hpcflow.storage.files import FILE_MODE, storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import require_no_link

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
_POLL_S = 0.05
#: A process that waits for longer is told what for.
_SILENT_S = 2.0

_log = logging.getLogger(__name__)


@dataclass
class HeldLock:
    """A lock that is held.

    Attributes:
        fd: open file descriptor for the submitting child to inherit.
        is_reliable: False where the file system has no locks, or nobody asked.
        may_be_sending: whether a child process may still be submitting. Then only the end of that
            child releases the lock.
    """

    fd: int
    is_reliable: bool = False
    may_be_sending: bool = False

    @contextmanager
    def lend(self) -> Iterator[int]:
        """Yield the descriptor for a submitting child process to inherit.

        Once the child has answered, :meth:`release` unlocks the file, even if a wrapper around
        sbatch left a process behind that has it open.
        """
        before, self.may_be_sending = self.may_be_sending, True
        try:
            yield self.fd
        except (SubmissionRefused, SubmissionDelayed, SchedulerUnavailable):
            self.may_be_sending = before
            raise
        self.may_be_sending = before

    def release(self) -> None:
        """Unlock the file, unless a child may still be submitting, and close it."""
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
        wait_s: how long to wait for somebody else who holds it; 0 to try once.
        must_be_free: nobody can be sending this run: a process that holds it will not give it back
            soon.

    Raises:
        StorageError: another process is submitting this run (``retryable``, unless the lock must be
            free), or the lock file cannot be opened, or there is a link in the place of the run
            directory.
    """
    require_no_link(run_dir)
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
    """Hold the lock on a shared file for the length of a ``with`` block; yield whether the file
    system supports it.

    Args:
        within: the open folder with the file, under the last name of ``path``.

    Raises:
        StorageError: somebody else holds it for longer than ``wait_s`` (``retryable``), or it
            cannot be opened.
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
        StorageError: another process holds it for longer than ``wait_s`` (``retryable``), or it
            cannot be opened.
    """
    lock = HeldLock(_open(path))
    try:
        held = partial(_busy, path)
        lock.is_reliable = _acquire(lock.fd, path, wait_s, clock or SystemClock(), held)
        yield lock
    finally:
        lock.release()


def mirror_lock(run_dir: RunDir) -> AbstractContextManager[HeldLock | None]:
    """Hold the run's mirror lock for the length of a ``with`` block; None if another process does.

    Raises:
        StorageError: the lock file cannot be opened.
    """
    return try_lock(run_dir.mirror_lock)


@contextmanager
def try_lock(path: Path) -> Iterator[HeldLock | None]:
    """Hold the lock on ``path`` for the length of a ``with`` block; None if another process does.

    A child process can inherit the open file, and with it the lock. Where the file system has no
    locks it is granted.

    Raises:
        StorageError: the lock file cannot be opened.
    """
    lock = HeldLock(_open(path))
    try:
        yield lock if _take(lock.fd, path) else None
    finally:
        lock.release()


def _open(path: Path, within: int | None = None) -> int:
    """Open a lock file, and create it if it is missing. In a shared folder it must exist, and
    another user may own it.

    Raises:
        StorageError: it cannot be opened, or is not an acceptable regular file.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        if within is None:
            fd = os.open(path, flags | os.O_CREAT, FILE_MODE)
        else:
            fd = os.open(path.name, flags, dir_fd=within)
        try:
            require_safe(fd, path, any_owner=within is not None)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise storage_error("lock", path, error) from error
    return fd


def _take(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise storage_error("lock", path, error) from error
    return True


def _acquire(
    fd: int, path: Path, wait_s: float, clock: Clock, held: Callable[[], StorageError]
) -> bool:
    """Wait for the lock; whether the file system really gave one.

    Args:
        held: what is wrong where somebody else has it for too long.
    """
    began, is_said = clock.monotonic(), False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            waited_s = clock.monotonic() - began
            if waited_s >= wait_s:
                raise held() from None
            if waited_s >= _SILENT_S and not is_said:
                is_said = True
                who = f"fuser -v {shell_word(path)}"
                _log.warning(
                    "%s is held by another process: waiting, %.0f s at most; who it is: %s",
                    path,
                    wait_s,
                    who,
                )
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise storage_error("lock", path, error) from error
        clock.sleep(_POLL_S)


def _contended(run_dir: RunDir) -> StorageError:
    run_id = run_dir.path.name
    error = StorageError(
        f"another process is submitting {run_id} right now",
        next_action=f"look in a moment: hpcflow show {run_id}",
    )
    error.retryable = True
    return error


def _busy(path: Path) -> StorageError:
    file = shell_word(path)
    error = StorageError(
        f"another process has held {path} for a while",
        next_action=f"try again; if that stays so, see who it is: fuser -v {file}",
    )
    error.retryable = True
    return error


def _stuck(run_dir: RunDir) -> StorageError:
    lock = shell_word(run_dir.submit_lock)
    return StorageError(
        f"{run_dir.submit_lock} is held, but no submission of this run was recorded for minutes",
        next_action=f"if that stays so, see who holds it, on each login node: fuser -v {lock}; if "
        f"no process does, the file server has not released it: rm {lock}",
    )
