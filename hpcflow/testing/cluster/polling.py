"""Waiting for something to become true, with a deadline. Never a sleep for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hpcflow.errors import HpcflowError

_MOST_S = 1.0

T = TypeVar("T")


class DeadlinePassed(HpcflowError):
    """What was waited for did not become true in time."""


def poll(
    fn: Callable[[], T],
    deadline_s: float,
    message: str | Callable[[], str],
    *,
    every_s: float = 0.05,
) -> T:
    """Call ``fn`` until what it returns is true, and return that.

    ``message`` says what was waited for; a function is called only when the time is up, so that it
    can show the last state. A look that takes long, because it starts programs, is followed by a
    rest of twice that time, a second at most: else it keeps the CPU from what it waits for.

    Raises DeadlinePassed after ``deadline_s`` seconds.
    """
    end = time.monotonic() + deadline_s
    while True:
        began = time.monotonic()
        value = fn()
        if value:
            return value
        looked = time.monotonic()
        if looked >= end:
            text = message() if callable(message) else message
            raise DeadlinePassed(f"waited {deadline_s:g} s in vain: {text}")
        time.sleep(max(every_s, min(2 * (looked - began), _MOST_S)))
