"""Print one line per step while a cluster starts, with its seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Progress:
    """Print steps to ``stream``, if that is not None."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        if self._stream is not None:
            print(text, file=self._stream, flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Print ``text`` and the seconds that the block took, or that it failed."""
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self.say(f"  {text:<44} failed after {time.monotonic() - began:.1f} s")
            raise
        self.say(f"  {text:<44} {time.monotonic() - began:5.1f} s")
