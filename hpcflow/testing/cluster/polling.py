"""Wait for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hpcflow.errors import HpcflowError

_MOST_S = 2.0

T = TypeVar("T")


class DeadlinePassed(HpcflowError):
    """A condition did not become true in time."""


def poll(
    fn: Callable[[], T],
    deadline_s: float,
    message: str | Callable[[], str],
    *,
    every_s: float = 0.05,
) -> T:
    """Call ``fn`` until it returns a true value; return that.

    ``message`` describes the condition; a function is called only at the deadline, so that it can
    show the last state. After a slow call, such as one that starts programs, the pause is four
    times its time, at most two seconds, to leave the CPU to what is waited for.

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
        time.sleep(max(every_s, min(4 * (looked - began), _MOST_S)))
