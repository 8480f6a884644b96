"""One piece of work on a thread of its own, beside the training.

The thread does not print: a data loader that is forked meanwhile would inherit the lock of stderr.
It does not talk to other ranks either. And it is no daemon thread, for Python stops one anywhere
when the program ends, also inside of torch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Background:
    """``work``, begun when this is made.

    Attributes:
        error: why it failed; to be looked at once :meth:`is_done`.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self.error: str | None = None
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="hpcflow-checkpoint", daemon=False
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no thread to give
            self.error = str(error)

    @property
    def has_begun(self) -> bool:
        """Whether there was a thread for it."""
        return self._thread.ident is not None

    def is_done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Return when it has ended, well or not."""
        if self.has_begun:
            self._thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # whatever it is, the training is told, and goes on
            # The text alone: with its traceback the error would keep the copied state alive.
            self.error = describe(error)


def processors() -> int:
    """How many this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not everywhere people try things out
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def describe(error: BaseException) -> str:
    """An error in one line: what the system says as it says it, anything else with its kind."""
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
