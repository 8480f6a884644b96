"""Run a program without a shell, and read what it prints, for a limited time."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from hpcflow.child_exit_codes import keep_exit_codes

#: How often to check whether a silent program has ended.
_POLL_S: Final = 0.1
#: How long to wait for more output after the program has ended. A process that it left behind may
#: still print (a wrapper's filter), or may keep the pipe open for ever (a shared ssh connection).
_READ_AFTER_END_S: Final = 2.0
#: The same if stdout is still empty: the filter may be slow to start.
_READ_NOTHING_S: Final = 10.0
#: How much to read after the time limit. What the pipes held then is less.
_MOST_LATE_BYTES: Final = 4 << 20
#: How long to wait for the end of a program that has closed its output, or was killed: one that
#: waits for a dead file system does not end.
_END_S: Final = 1.0


@dataclass(frozen=True)
class ProgramResult:
    """What a program printed.

    Attributes:
        exit_code: negative if a signal ended it; None if it was killed after its time.
    """

    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def problem(self) -> str | None:
        """Return the error that it printed, or the exit code; None if it succeeded."""
        if self.exit_code == 0:
            return None
        if self.exit_code is None:
            return "it was killed, because it did not end in time"
        return self.stderr.strip() or f"exit code {self.exit_code}"


def run_program(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
) -> ProgramResult:
    """Run a program in a session of its own; after ``timeout_s`` kill it and what it started.

    Ctrl-C does not kill it: if sbatch is killed halfway, hpcflow cannot tell if there is a job.

    Raises:
        OSError: it cannot be started.
    """
    keep_exit_codes()
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        cwd=cwd,
        pass_fds=pass_fds,
        umask=umask,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    deadline, exit_code = time.monotonic() + timeout_s, None
    with process.stdout as stdout, process.stderr as stderr:
        printed: dict[IO[bytes], bytearray] = {stdout: bytearray(), stderr: bytearray()}
        # To the caller, OSError means "not started": none may escape from here.
        with suppress(OSError, subprocess.TimeoutExpired):
            if _read(process, printed, deadline):
                exit_code = process.wait(max(_END_S, deadline - time.monotonic()))
        if process.poll() is None:
            with suppress(OSError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(_END_S)
        return ProgramResult(exit_code, _text(printed[stdout]), _text(printed[stderr]))


def _read(
    process: subprocess.Popen[bytes], printed: dict[IO[bytes], bytearray], deadline: float
) -> bool:
    """Read until all writers have ended, or the program has and prints nothing more.

    Return whether all was read. If hpcflow itself was stopped (Ctrl-Z), output that came meanwhile
    is read after the time limit.
    """
    with selectors.DefaultSelector() as selector:
        for each in printed:
            selector.register(each, selectors.EVENT_READ, printed[each])
        silent_since, late_bytes = None, 0
        while selector.get_map():
            left_s = deadline - time.monotonic()
            ready = selector.select(max(0.0, min(left_s, _POLL_S)))
            for key, _ in ready:
                data, buffer = os.read(key.fd, 1 << 16), key.data
                buffer += data
                late_bytes += len(data) if left_s <= 0 else 0
                if not data:
                    selector.unregister(key.fileobj)
            if ready and late_bytes <= _MOST_LATE_BYTES:
                silent_since = None
                continue
            if left_s <= 0:
                return False
            if process.poll() is None:
                continue
            silent_since = silent_since or time.monotonic()
            is_empty = process.stdout is not None and not printed[process.stdout]
            grace_s = _READ_NOTHING_S if is_empty else _READ_AFTER_END_S
            if time.monotonic() - silent_since >= grace_s:
                return True
    return True


def _text(data: bytearray) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
