"""A command in a fork of this process, which has imported everything: with a deadline, a limit of
memory, and a terminal before it where that is asked for."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

#: No command on a project of ten small runs may take so long, on a machine that is busy.
DEADLINE_S: Final = 90
#: What a command may take on top of what this process has.
MEMORY_BYTES: Final = 256 << 20
#: From here on it is ended, for the sake of this machine. The kernel's limits count what is
#: reserved and never used, too.
_LAST_BYTES: Final = 1 << 30
_LOOK_S: Final = 0.05
_MAX_OUTPUT_BYTES: Final = 8 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code, or minus the signal that ended it.
        out: what it wrote, stdout and stderr together; of a terminal with its ends of lines.
        grown_bytes: how much more memory it had than this process.
        hung: it was ended for it took too long.
    """

    code: int
    out: bytes
    grown_bytes: int
    hung: bool

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def document(self) -> Any:
        """What it printed with ``--json``, behind the warnings."""
        return json.loads(self.out[self.out.find(b"{") :])

    @property
    def has_traceback(self) -> bool:
        return b"Traceback (most recent call last)" in self.out


def in_child(
    function: Callable[[], int],
    *,
    environ: Mapping[str, str],
    folder: Path,
    at_terminal: bool = False,
    deadline_s: float = DEADLINE_S,
) -> Ended:
    """Call ``function`` in a fork, in a session of its own; nothing of it is left at the end."""
    reader, writer = pty.openpty() if at_terminal else os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    before = _memory_bytes("self")
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _be_child(function, writer, environ, folder)
    os.close(writer)
    out, hung = _read(reader, time.monotonic() + deadline_s, pid, before + _LAST_BYTES)
    os.close(reader)
    with suppress(ProcessLookupError):  # what it has started is not left behind either
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    return Ended(os.waitstatus_to_exitcode(status), out, used.ru_maxrss * 1024 - before, hung=hung)


def _be_child(
    function: Callable[[], int], writer: int, environ: Mapping[str, str], folder: Path
) -> None:
    """Never returns."""
    code = 70
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (writer, 1), (writer, 2)):
            os.dup2(source, target)
        os.closerange(3, 256)
        # As Python opens them where the locale is UTF-8.
        for name, descriptor, errors in (
            ("stdout", 1, "strict"),
            ("stderr", 2, "backslashreplace"),
        ):
            vars(sys)[name] = vars(sys)[f"__{name}__"] = _text(descriptor, errors)
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(folder)
        code = function()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _text(descriptor: int, errors: str) -> TextIO:
    binary = os.fdopen(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=os.isatty(descriptor))


def _read(reader: int, until_s: float, pid: int, most_bytes: int) -> tuple[bytes, bool]:
    """What is written there, and whether there was no end of it in time."""
    parts: list[bytes] = []
    size_bytes = 0
    while time.monotonic() < until_s:
        if not select.select([reader], [], [], _LOOK_S)[0]:
            if _memory_bytes(pid) > most_bytes:
                os.kill(pid, signal.SIGKILL)
            continue
        try:
            part = os.read(reader, 1 << 16)
        except OSError:  # a terminal whose other side is closed
            part = b""
        if not part:
            return b"".join(parts), False
        size_bytes += len(part)
        if size_bytes <= _MAX_OUTPUT_BYTES:
            parts.append(part)
    return b"".join(parts), True


def _memory_bytes(pid: int | str) -> int:
    """What of a process is resident; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0
