"""Find jobs that report that they are about to exit, in their event files and without asking Slurm.

A job that is told to save and exit reports both the notice and its exit code. A daemon that reads
these events need not wait for its next round to submit the next attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import StorageError
from hpcflow.storage.files import read_from
from hpcflow.storage.layout import RunDir

#: How many jobs are watched. With more, one ends at any moment, and the reads would load scratch.
MOST: Final = 200
#: How long an announced exit is expected. The notice of a time limit comes minutes before the exit,
#: which the job then announces again.
_NEAR_S: Final = 30.0
_TAIL_BYTES: Final = 4096
#: With the key, because a metric may have such a name.
_WORDS: Final = (b'"event": "notice"', b'"event": "exited"')


class ExpectedExits:
    """Watch the events of running jobs between two rounds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_bytes: dict[Path, int] = {}
        self._announced_at: dict[Path, float] = {}

    def listen_to(self, running: Iterable[tuple[str, int]]) -> None:
        """Watch these attempts from now on; none if they are more than :data:`MOST`.

        Args:
            running: run directory and attempt number of each running attempt.
        """
        files = {RunDir(Path(path)).attempt(number).events for path, number in running}
        if len(files) > MOST:
            files = set()
        self._heard_bytes = {path: self._heard_bytes.get(path, -1) for path in files}
        self._announced_at = {
            path: at for path, at in self._announced_at.items() if path in self._heard_bytes
        }

    def is_near(self) -> bool:
        """Return whether a job has announced its exit within the last 30 s."""
        now = self._clock.monotonic()
        for path in self._heard_bytes:
            if self._announces(path):
                self._announced_at[path] = now
        return any(now - at < _NEAR_S for at in self._announced_at.values())

    def _announces(self, path: Path) -> bool:
        with suppress(OSError, StorageError):
            size = path.stat().st_size
            heard, self._heard_bytes[path] = self._heard_bytes[path], size
            if size <= heard:
                return False
            # The tail is enough.
            begin = max(0, heard - len(_WORDS[0]), size - _TAIL_BYTES)
            text = read_from(path, begin, _TAIL_BYTES)
            return any(word in text for word in _WORDS)
        return False
