"""Retry while a store is unavailable."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import MirrorUnavailable

_T = TypeVar("_T")
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0


def with_retries(call: Callable[[], _T], *, clock: Clock, patience_s: float) -> _T:
    """Return ``call()``; retry with growing waits while the store is unavailable.

    Half of each wait is random, so that many clients of one server do not retry together.

    Raises:
        MirrorUnavailable: the store is still unavailable after ``patience_s``.
    """
    deadline_s = clock.monotonic() + patience_s
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            return call()
        except MirrorUnavailable:  # noqa: PERF203 - a retry
            left_s = deadline_s - clock.monotonic()
            if left_s <= 0:
                raise
            clock.sleep(min(left_s, wait_s * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
            wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)
