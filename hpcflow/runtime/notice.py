"""The notice: somebody tells this job to save and leave.

It comes as SIGTERM (preemption, the end of a job), as SIGUSR2 (shortly before the time limit), or
as a file that the job script creates. A signal only sets a flag here: saving happens at the end of
a train step, on all ranks at the same one, which :mod:`hpcflow.runtime.ranks` sees to.

A trial of a sweep that is not worth its end finds a word of its own in the run's file ``cancel``:
to leave, and to save nothing more.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hpcflow.runtime.reading import MAX_WORD_BYTES, read_file

#: What a rank has to say at the end of a train step; all hear the largest. Of a save under way,
#: BUSY: this rank still writes; FAILED: it could not; NOTHING: all of it is on disk. From FLAG on,
#: all leave.
NOTHING, SAVE, FAILED, BUSY, FLAG, USR2, TERM = range(7)

#: What a notice is called in events.
NAMES = {FLAG: "flag", USR2: "USR2", TERM: "TERM"}

#: The word in the run's file ``cancel`` that means: leave, and save nothing more.
PRUNED: Final = "pruned"

_SIGNALS = {signal.SIGUSR2: USR2, signal.SIGTERM: TERM}
_POLL_S = 1.0


class Notice:
    """Whether the notice came to this process.

    Args:
        flag: the file to look for, at most once a second; None on all ranks but one.
        cancel: the file that says that the run shall end for good; looked into as often.
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
        """Take the signals; only the main thread can, elsewhere the file alone counts."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._on_signal)

    def stop_listening(self) -> None:
        """Restore the signal handlers that were there before."""
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def seen(self) -> int:
        """NOTHING, or by what the notice came."""
        if self._seen == NOTHING and self._flag is not None:
            now = self._monotonic()
            if self._polled_at is None or now - self._polled_at >= _POLL_S:
                self._polled_at = now
                if self._flag.exists() or self.is_pruned():
                    self._seen = FLAG
        return self._seen

    def is_pruned(self) -> bool:
        """Whether what is trained here is not worth being saved any more."""
        if self._cancel is None:
            return False
        try:
            return read_file(self._cancel, MAX_WORD_BYTES).strip() == PRUNED.encode()
        except OSError:
            return False

    def _on_signal(self, number: int, _frame: object) -> None:
        self._seen = max(self._seen, _SIGNALS[signal.Signals(number)])
