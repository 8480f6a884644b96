"""Run one piece of work in a thread while the training continues.

The thread must not print: a data loader forked meanwhile would inherit the lock of stderr. It does
not communicate with other ranks. It is not a daemon thread: Python stops those anywhere when the
program ends, even inside torch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Background:
    """Runs ``work`` in a thread, which starts at once.

    Attributes:
        error: why it failed; valid once :meth:`is_done`.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self.error: str | None = None
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="hpcflow-checkpoint", daemon=False
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # the system cannot start a thread
            self.error = str(error)

    @property
    def has_begun(self) -> bool:
        """Return whether the thread could be started."""
        return self._thread.ident is not None

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the work has ended, successfully or not."""
        if self.has_begun:
            self._thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # any error is reported, and the training continues
            # Only the text: the traceback would keep the copied state alive.
            self.error = describe(error)


def processors() -> int:
    """Return the number of processors that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def describe(error: BaseException) -> str:
    """Return an error as one line; other errors than OSError with their type."""
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
