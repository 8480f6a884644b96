"""Record the progress of an upload in a small file, for other commands."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from hpcflow.clock import Clock
from hpcflow.runtime.reading import read_json
from hpcflow.storage.files import FILE_MODE
from hpcflow.storage.layout import RunDir

_EVERY_S: Final = 1.0


@dataclass(frozen=True)
class UnderWay:
    """The progress of an upload, which may have been killed since."""

    train_step: int
    sent_bytes: int
    size_bytes: int


class Progress:
    """Writes the progress about once a second, during a ``with`` block."""

    def __init__(self, run_dir: RunDir, train_step: int, size_bytes: int, clock: Clock) -> None:
        self._path, self._clock = run_dir.mirror_progress, clock
        self._train_step, self._size_bytes = train_step, size_bytes
        self._sent_bytes, self._written_at_s = 0, clock.monotonic()

    def add(self, size_bytes: int) -> None:
        """Count bytes as sent. Called by one thread at a time."""
        self._sent_bytes += size_bytes
        if self._clock.monotonic() - self._written_at_s >= _EVERY_S:
            self._written_at_s = self._clock.monotonic()
            self._write()

    def __enter__(self) -> Progress:
        self._write()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._path.unlink()

    def _write(self) -> None:
        said = [self._train_step, self._sent_bytes, self._size_bytes]
        aside = self._path.with_suffix(".tmp")
        # Best effort: not synced, and errors are ignored.
        with suppress(OSError):
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(said))
            aside.replace(self._path)


def under_way(run_dir: RunDir) -> UnderWay | None:
    """Return the progress of the active or killed upload; None if there is none."""
    try:
        train_step, sent_bytes, size_bytes = read_json(run_dir.mirror_progress)
        return UnderWay(int(train_step), int(sent_bytes), int(size_bytes))
    except (OSError, ValueError, TypeError):
        return None
