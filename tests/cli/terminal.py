"""A real terminal at which ``hpcflow`` is typed, in this process."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable

from hpcflow.cli.main import main


class Terminal:
    """A terminal of so many columns."""

    def __init__(self, columns: int = 160) -> None:
        self._columns = columns

    def type(self, *args: str) -> str:
        """Return what it shows of a command."""
        codes: list[int] = []
        shown = self.show(lambda: codes.append(main(list(args))))
        assert codes[0] in (0, 1, 2), shown
        return shown

    def show(self, work: Callable[[], object]) -> str:
        """Return what it shows while ``work`` prints."""
        main_end, worker = pty.openpty()
        fcntl.ioctl(worker, termios.TIOCSWINSZ, struct.pack("HHHH", 50, self._columns, 0, 0))
        shown = bytearray()

        def read() -> None:
            while True:
                try:
                    shown.extend(os.read(main_end, 65536))
                except OSError:  # noqa: PERF203 - the other end is closed
                    return

        reader = threading.Thread(target=read)
        reader.start()
        old, columns = (sys.stdout, sys.stderr), os.environ.pop("COLUMNS", None)
        sys.stdout = io.TextIOWrapper(io.FileIO(worker, "w", closefd=False), write_through=True)
        sys.stderr = sys.stdout
        try:
            work()
        finally:
            sys.stdout.flush()
            sys.stdout, sys.stderr = old
            if columns is not None:
                os.environ["COLUMNS"] = columns
            os.close(worker)
            reader.join()
            os.close(main_end)
        return shown.decode()
