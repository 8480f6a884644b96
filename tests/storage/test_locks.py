"""One process at a time may create a job, and a killed one's child still counts."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hpcflow.errors import (
    SchedulerError,
    SchedulerUnavailable,
    StorageError,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionRefused,
)
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock, submit_lock, try_lock
from hpcflow.testing.clock import FakeClock


def test_the_second_waits_and_then_is_told_who_is_in_the_way(tmp_path: Path) -> None:
    clock = FakeClock()
    with submit_lock(RunDir(tmp_path), wait_s=0) as lock:
        assert lock.is_reliable
        with (
            pytest.raises(StorageError, match="another process is submitting") as caught,
            submit_lock(RunDir(tmp_path), wait_s=2, clock=clock),
        ):
            pytest.fail("two held the lock")
    assert caught.value.retryable
    assert 2 <= clock.monotonic() < 2.1
    with submit_lock(RunDir(tmp_path), wait_s=0):
        assert (tmp_path / "submit.lock").stat().st_mode & 0o777 == 0o600


# Takes the lock, starts a child that holds it while its stdin is open, and is killed.
KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
with submit_lock(RunDir(Path(sys.argv[1])), wait_s=0) as lock:
    subprocess.Popen(["cat"], pass_fds=[lock.fd])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lock_lives_as_long_as_the_child_of_a_killed_process(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], stdin=read_end)
    os.close(read_end)
    assert done.returncode == -signal.SIGKILL

    with (
        pytest.raises(StorageError, match="another process"),
        submit_lock(RunDir(tmp_path), wait_s=0),
    ):
        pytest.fail("the child still holds it")
    os.close(write_end)  # the child ends
    with submit_lock(RunDir(tmp_path), wait_s=30) as lock:
        assert lock.is_reliable


@pytest.mark.parametrize(
    "answer", [None, SubmissionRefused("x"), SubmissionDelayed("x"), SchedulerUnavailable("x")]
)
@pytest.mark.parametrize("before", [None, SubmissionInDoubt("x"), KeyboardInterrupt()])
def test_a_child_keeps_the_lock_only_while_it_may_be_submitting(
    tmp_path: Path, answer: Exception | None, before: BaseException | None
) -> None:
    """A wrapper around sbatch may leave a process behind that lives for days."""
    left: list[subprocess.Popen[bytes]] = []

    def send(lock: HeldLock, raised: BaseException | None) -> None:
        with suppress(SchedulerError, KeyboardInterrupt), lock.lend() as fd:
            left.append(subprocess.Popen(["cat"], pass_fds=[fd], stdin=subprocess.PIPE))
            if raised is not None:
                raise raised

    try:
        with submit_lock(RunDir(tmp_path), wait_s=0) as lock:
            if before is not None:
                send(lock, before)
            send(lock, answer)
            with try_lock(RunDir(tmp_path).submit_lock) as other:
                assert other is None
        with try_lock(RunDir(tmp_path).submit_lock) as other:
            assert (other is None) == (before is not None)
    finally:
        for each in left:
            each.communicate()


def test_other_children_do_not_get_the_lock(tmp_path: Path) -> None:
    with submit_lock(RunDir(tmp_path), wait_s=0) as lock:
        assert not os.get_inheritable(lock.fd)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_gives_one_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with submit_lock(RunDir(tmp_path), wait_s=0) as lock:
        assert not lock.is_reliable


def test_a_purged_run_directory_is_a_clear_error(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="No such file"),
        submit_lock(RunDir(tmp_path / "gone"), wait_s=0),
    ):
        pytest.fail("a lock on nothing")


def test_whoever_waits_is_told_once_what_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with submit_lock(RunDir(tmp_path), wait_s=0):
        with (
            pytest.raises(StorageError),
            submit_lock(RunDir(tmp_path), wait_s=1, clock=FakeClock()),
        ):
            pytest.fail("two at once")
        assert caplog.messages == [], "a moment is no news"
        with (
            pytest.raises(StorageError),
            submit_lock(RunDir(tmp_path), wait_s=60, clock=FakeClock()),
        ):
            pytest.fail("two at once")
    (said,) = caplog.messages
    assert f"holds {tmp_path}/submit.lock: waiting for 60 s at most" in said
    assert f"fuser -v {tmp_path}/submit.lock" in said
