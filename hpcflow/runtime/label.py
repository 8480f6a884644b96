"""``python3 -I -S label.py COMMAND…``: execute COMMAND; each line it prints begins with its rank.

All ranks of a run write to one log. Python 3.6 of an old image can execute this file.
"""

import os
import select
import signal
import subprocess
import sys
import time

_READ_BYTES = 1 << 16
#: A pipe takes this much in one piece (PIPE_BUF), so lines of ranks that share it stay whole.
_WRITE_BYTES = 1 << 12
_LONGEST_LINE = 1 << 20
#: Seconds that the start of a line waits for its end. A progress bar prints none.
_LINE_WAITS_S = 5.0
#: Seconds that processes which the program leaves behind may still print.
_DRAIN_S = 2.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Labels:
    """Puts a label before each line.

    Args:
        label: such as ``[rank3]: ``, as torch marks lines, which are not marked twice.
    """

    def __init__(self, label: str) -> None:
        self._label = label.encode()
        self._open = b""

    @property
    def has_open_line(self) -> bool:
        """Whether the start of a line waits for its end."""
        return bool(self._open)

    def add(self, chunk: bytes) -> "list[bytes]":
        """Return the lines that are complete with ``chunk``."""
        *lines, self._open = (self._open + chunk).split(b"\n")
        if len(self._open) > _LONGEST_LINE:
            lines.append(self._open)
            self._open = b""
        return [self._labelled(line) for line in lines]

    def close(self) -> "list[bytes]":
        """Return the open line, if there is one, as a whole one."""
        line, self._open = self._open, b""
        return [self._labelled(line)] if line else []

    def _labelled(self, line: bytes) -> bytes:
        return (line if line.startswith(self._label) else self._label + line) + b"\n"


def main(argv: "list[str]") -> int:
    """Execute ``argv`` as a shell would.

    Returns:
        Its exit code; 128 + the number of the signal that ended it.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    # The program gets the same signal. What it prints afterwards must still be written.
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    words = ["/bin/sh", "-c", 'exec "$@"', "sh"] + argv  # noqa: RUF005 - for the oldest Python
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert program.stdout is not None
    _copy(program, program.stdout.fileno(), woken)
    code = program.wait()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return 128 - code if code < 0 else code


def _copy(program: "subprocess.Popen[bytes]", output: int, woken: int) -> None:
    """Write what the program prints, until it has ended."""
    labels = Labels(f"[rank{os.environ.get('RANK', '0')}]: ")
    opened_at = 0.0
    ends_at = None
    while True:
        now = time.monotonic()
        if ends_at is None and program.poll() is not None:
            ends_at = now + _DRAIN_S
        if ends_at is not None:
            wait_s = 0.0  # all that it has printed can be read at once
        else:
            wait_s = max(0.0, opened_at + _LINE_WAITS_S - now) if labels.has_open_line else 3600.0
        ready = select.select([output, woken], [], [], wait_s)[0]
        if woken in ready:
            os.read(woken, _READ_BYTES)
        if output in ready:
            chunk = os.read(output, _READ_BYTES)
            was_open = labels.has_open_line
            lines = labels.add(chunk)
            if lines or not was_open:
                opened_at = time.monotonic()
            _write(lines)
            if not chunk:
                break
        elif ends_at is not None and not ready:
            break
        if ends_at is not None and time.monotonic() > ends_at:
            break
        if labels.has_open_line and time.monotonic() >= opened_at + _LINE_WAITS_S:
            _write(labels.close())
    _write(labels.close())


def _write(lines: "list[bytes]") -> None:
    """Write to the log. A full disk, or a launcher that is gone, does not stop the program."""
    block = b""
    try:
        for line in lines:
            if len(block) + len(line) > _WRITE_BYTES:
                _write_all(block)
                block = b""
            block += line
        _write_all(block)
    except OSError:
        pass


def _write_all(block: bytes) -> None:
    while block:
        block = block[os.write(1, block) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
