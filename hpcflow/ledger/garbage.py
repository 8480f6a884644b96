"""Pause Python's garbage collection while rows are read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Rows and jobs by the ten thousand hold no cycles. Looking for some in them, again and again
    as they grow in number, takes a quarter of a round, and much longer if another role has written
    JSON with many values."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
