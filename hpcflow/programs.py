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

#: How often a program that prints nothing is looked at.
_LOOK_S: Final = 0.1
#: For so long what it prints is read after its end. A wrapper may filter it in a process for which
#: no shell waits; it may also leave a process behind that never ends, such as a shared connection
#: of ssh.
_REST_S: Final = 2.0
#: A killed program that waits for a disk which is away does not end.
_KILL_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True)
class Outcome:
    """What a program printed.

    Attributes:
        exit_code: negative if a signal ended it; None if it was killed after its time.
    """

    exit_code: int | None
    stdout: str
    stderr: str


def run_program(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
) -> Outcome:
    """Run a program in a session of its own; after ``timeout_s`` kill it and what it started.

    An interrupt does not end it: an sbatch that is killed half-way leaves a doubt.

    Args:
        argv: its path, and its arguments.

    Raises:
        OSError: it cannot be started.
    """
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
    deadline = time.monotonic() + timeout_s
    with process.stdout as stdout, process.stderr as stderr:
        printed: dict[IO[bytes], bytearray] = {stdout: bytearray(), stderr: bytearray()}
        _read(process, printed, deadline)
        exit_code: int | None = None
        try:
            exit_code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_TIMEOUT_S)
        return Outcome(exit_code, _text(printed[stdout]), _text(printed[stderr]))


def _read(
    process: subprocess.Popen[bytes], printed: dict[IO[bytes], bytearray], deadline: float
) -> None:
    """Read until all writers have ended, or the program has and :data:`_REST_S` are over."""
    with selectors.DefaultSelector() as selector:
        for each in printed:
            selector.register(each, selectors.EVENT_READ, each)
        has_ended = False
        while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(min(left_s, _LOOK_S)):
                data = os.read(key.fd, 1 << 16)
                printed[key.data] += data
                if not data:
                    selector.unregister(key.fileobj)
            if not has_ended and process.poll() is not None:
                has_ended, deadline = True, min(deadline, time.monotonic() + _REST_S)


def _text(data: bytearray) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
