"""Round requests up to usual numbers. Pure."""

from __future__ import annotations

import math
from typing import Final

_GIB_MB: Final = 1024


def memory_mb(mb: float) -> int:
    """Round up to quarters of a GiB below 1 GiB, to whole GiB below 64, then to multiples of 8."""
    step = _GIB_MB // 4 if mb <= _GIB_MB else _GIB_MB if mb <= 64 * _GIB_MB else 8 * _GIB_MB
    return max(step, math.ceil(mb / step) * step)


def minutes(number: float) -> int:
    """Round up to 5 minutes below one hour, to quarters of an hour below 6, then to whole hours."""
    step = 5 if number <= 60 else 15 if number <= 360 else 60
    return max(step, math.ceil(number / step) * step)
