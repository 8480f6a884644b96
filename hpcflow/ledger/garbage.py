"""Pause Python's garbage collection while rows are read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection in the block.

    Tens of thousands of rows and jobs contain no cycles. Collections among them take a quarter of a
    round, and much longer if another role has written JSON with many values.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
