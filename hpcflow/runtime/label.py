"""``python3 -I -S label.py COMMAND…``: execute COMMAND; each line it prints begins with its rank.

All ranks write to one log. srun can label their lines by itself; torchrun starts each rank through
this file. It needs nothing but Python, and its exit code is that of COMMAND.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from typing import Final

_READ_BYTES: Final = 1 << 16
#: A progress bar that writes over itself has no line end; nor do bytes that are no text.
_MOST_OF_A_BAR: Final = 1 << 12
_MOST_OF_A_LINE: Final = 1 << 20
#: How long processes that the program leaves behind may go on writing to its output.
_DRAIN_S: Final = 2.0


class Labels:
    """Puts a label before each line.

    Args:
        label: such as ``[rank3]: ``, as torch marks lines, which are not marked twice.
    """

    def __init__(self, label: str) -> None:
        self._label = label.encode()
        self._rest = b""

    def add(self, chunk: bytes) -> bytes:
        """Return the lines that are complete with ``chunk``."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        if len(rest) > _MOST_OF_A_BAR and b"\r" in rest:
            bar, _, rest = rest.rpartition(b"\r")
            lines.append(bar)
        elif len(rest) > _MOST_OF_A_LINE:
            lines.append(rest)
            rest = b""
        self._rest = rest
        return b"".join(map(self._labelled, lines))

    def end(self) -> bytes:
        """Return the last line, if it is not complete."""
        rest, self._rest = self._rest, b""
        return self._labelled(rest) if rest else b""

    def _labelled(self, line: bytes) -> bytes:
        return (line if line.startswith(self._label) else self._label + line) + b"\n"


def main(argv: list[str]) -> int:
    """Execute ``argv``.

    Returns:
        Its exit code; 128 + the number of the signal that ended it.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    # The program is told by the same signal; what it then prints is still to be written.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    program = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert program.stdout is not None
    output = program.stdout.fileno()
    labels = Labels(f"[rank{os.environ.get('RANK', '0')}]: ")
    deadline: float | None = None
    while True:
        if deadline is None and program.poll() is not None:
            deadline = time.monotonic() + _DRAIN_S
        # Once it has ended, all that it has printed can be read at once.
        ready, _, _ = select.select([output, woken], [], [], None if deadline is None else 0)
        if woken in ready:
            os.read(woken, _READ_BYTES)
        if output in ready:
            chunk = os.read(output, _READ_BYTES)
            _write(labels.add(chunk))
            if not chunk:
                break
        elif deadline is not None and not ready:
            break
        if deadline is not None and time.monotonic() > deadline:
            break
    _write(labels.end())
    code = program.wait()
    return 128 - code if code < 0 else code


def _write(lines: bytes) -> None:
    """Write to the log. A full disk, or a launcher that is gone, does not stop the program."""
    try:
        while lines:
            lines = lines[os.write(1, lines) :]
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
