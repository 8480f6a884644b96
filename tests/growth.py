"""Whether work grows with what it is given, or with the square of it: the same on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable

#: So many times more is given; linear work takes about as many times longer, square work 64 times.
TIMES = 8
MOST = 24
#: A machine that is busy with other things takes longer by chance, never shorter.
TRIES = 5


def require_no_square(work: Callable[[int], object], size: int) -> None:
    """Fail if ``work(size)`` takes the CPU far more than ``TIMES`` as long as an eighth of it.

    Only what both take in the same moment is compared, never what a second is.
    """
    small_s, large_s = [], []
    for _ in range(TRIES):
        small_s.append(_cpu_s(work, size // TIMES))
        large_s.append(_cpu_s(work, size))
        if min(large_s) <= MOST * min(small_s):
            return
    assert min(large_s) <= MOST * min(small_s), (small_s, large_s)


def _cpu_s(work: Callable[[int], object], size: int) -> float:
    began_s = time.process_time()
    work(size)
    return time.process_time() - began_s
