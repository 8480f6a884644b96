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

#: How many jobs are listened to. Where more run, one ends at any moment, and the many looks would
#: be a burden to scratch.
MOST: Final = 200
#: How long an end is waited for that a job has announced. Before a time limit the notice comes
#: minutes early; its exit is then announced once more.
_NEAR_S: Final = 30.0
_TAIL_BYTES: Final = 4096
#: A metric may have such a name, too.
_WORDS: Final = (b'"event": "notice"', b'"event": "exited"')


class ExpectedExits:
    """Listens to the jobs that run, between two rounds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_bytes: dict[Path, int] = {}
        self._announced_at: dict[Path, float] = {}

    def listen_to(self, running: Iterable[tuple[str, int]]) -> None:
        """From now on, to these.

        Args:
            running: run directory and number of each attempt that runs; if they are more than
                :data:`MOST`, to none.
        """
        files = {RunDir(Path(path)).attempt(number).events for path, number in running}
        if len(files) > MOST:
            files = set()
        self._heard_bytes = {path: self._heard_bytes.get(path, -1) for path in files}
        self._announced_at = {
            path: at for path, at in self._announced_at.items() if path in self._heard_bytes
        }

    def is_near(self) -> bool:
        """Whether any of them has announced its end a moment ago."""
        now = self._clock.monotonic()
        for path in self._heard_bytes:
            if self._announces(path):
                self._announced_at[path] = now
        return any(now - at < _NEAR_S for at in self._announced_at.values())

    def _announces(self, path: Path) -> bool:
        """Whether there is such a word in what was written since the last look."""
        with suppress(OSError, StorageError):
            size = path.stat().st_size
            heard, self._heard_bytes[path] = self._heard_bytes[path], size
            if size <= heard:
                return False
            # The last words of what nobody has looked at yet are enough.
            begin = max(0, heard - len(_WORDS[0]), size - _TAIL_BYTES)
            text = read_from(path, begin, _TAIL_BYTES)
            return any(word in text for word in _WORDS)
        return False
