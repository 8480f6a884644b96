"""Keep the exit codes of child processes. The command line needs this before any other import."""

from __future__ import annotations

import signal
from contextlib import suppress


def keep_exit_codes() -> None:
    """Restore the default action of SIGCHLD.

    If the parent process ignored it, the kernel discards exit codes and Python reports 0: a failed
    squeue would look like an empty queue.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        with suppress(ValueError):  # raised outside the main thread
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
