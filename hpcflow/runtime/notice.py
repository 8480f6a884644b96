"""Receive the notice to save and exit.

It comes as SIGTERM (preemption, the end of a job), as SIGUSR2 (shortly before the time limit), or
as a file that the job script creates. A signal only sets a flag: all ranks save at the end of the
same train step (:mod:`hpcflow.runtime.ranks`).

For a pruned trial of a sweep, the run's file ``cancel`` contains :data:`PRUNED`: it exits without a
save.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hpcflow.runtime.reading import MAX_WORD_BYTES, read_file

#: The values that ranks exchange at the end of a train step; the largest counts. For a save under
#: way, BUSY: this rank still writes; FAILED: its write failed; NOTHING: its part is on disk. From
#: FLAG on, all exit.
NOTHING, SAVE, FAILED, BUSY, FLAG, USR2, TERM = range(7)

#: The names of notices in events.
NAMES = {FLAG: "flag", USR2: "USR2", TERM: "TERM"}

#: The content of the run's file ``cancel`` that means: exit without a save.
PRUNED: Final = "pruned"

_SIGNALS = {signal.SIGUSR2: USR2, signal.SIGTERM: TERM}
_POLL_S = 1.0


class Notice:
    """Detects whether this process has got the notice.

    Args:
        flag: the file to look for, at most once a second; None on all ranks but one.
        cancel: the file that ends the run without resubmission; read as often.
    """

    def __init__(
        self,
        flag: Path | None,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        cancel: Path | None = None,
    ) -> None:
        self._flag, self._cancel = flag, cancel
        self._monotonic = monotonic
        self._polled_at: float | None = None
        self._seen = NOTHING
        self._previous: dict[int, Any] = {}

    def listen(self) -> None:
        """Install the signal handlers. Only the main thread can; in others only the file counts."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._on_signal)

    def stop_listening(self) -> None:
        """Restore the earlier signal handlers."""
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def seen(self) -> int:
        """Return the kind of notice that came: FLAG, USR2 or TERM; NOTHING if none."""
        if self._seen == NOTHING and self._flag is not None:
            now = self._monotonic()
            if self._polled_at is None or now - self._polled_at >= _POLL_S:
                self._polled_at = now
                if self._flag.exists() or self.is_pruned():
                    self._seen = FLAG
        return self._seen

    def is_pruned(self) -> bool:
        """Return whether the trial was pruned, and so needs no save."""
        if self._cancel is None:
            return False
        try:
            return read_file(self._cancel, MAX_WORD_BYTES).strip() == PRUNED.encode()
        except OSError:
            return False

    def _on_signal(self, number: int, _frame: object) -> None:
        self._seen = max(self._seen, _SIGNALS[signal.Signals(number)])
