"""Make sure that the exit codes of programs that hpcflow starts are not lost."""

from __future__ import annotations

import signal
from contextlib import suppress


def keep_exit_codes() -> None:
    """Stop ignoring SIGCHLD, if the process that started this one ignored it.

    While it is ignored, the kernel keeps no exit code, and Python reports 0: a squeue that failed
    would say that no job exists.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        with suppress(ValueError):  # possible in the main thread only
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
