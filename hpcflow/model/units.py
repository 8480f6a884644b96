"""Human units: ``4h`` and ``200G`` to the integers that stand in the code, and back.

Durations are whole minutes, because that is what Slurm's time limits are counted in; memory is
mebibytes, because that is what ``--mem`` counts in.
"""

from __future__ import annotations

import re
from typing import Final

_DURATION_UNITS_S: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhdw])", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern}\s*)+", re.ASCII)
_SLURM_TIME: Final = re.compile(r"(?:(\d{1,4})-)?(\d{1,5}):(\d{1,2})(?::(\d{1,2}))?", re.ASCII)
_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.ASCII | re.IGNORECASE)
_MEMORY_UNITS_MB: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0}

#: Longest text that is looked at; anything longer is nonsense and is not worth a regex's time.
_MAX_CHARS: Final = 64


def parse_duration_s(text: str) -> int:
    """Seconds in ``90s``, ``30m``, ``4h``, ``1d12h``, or Slurm's ``D-HH:MM:SS``, ``HH:MM:SS``.

    ``D-HH:MM`` is read as Slurm reads it; a bare ``MM:SS`` is refused, since half of all people
    mean hours and minutes by it.

    Raises:
        ValueError: not a duration; the text says what one looks like.
    """
    text = text.strip()
    if len(text) <= _MAX_CHARS:
        if _DURATION.fullmatch(text):
            parts = _DURATION_PART.findall(text)
            return round(sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in parts))
        clock = _SLURM_TIME.fullmatch(text)
        if clock and (clock[1] or clock[4]):
            days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
            if minutes < 60 and seconds < 60:
                return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    raise ValueError("not a duration: write it like 30m, 4h, 1d12h or 1-12:00:00")


def parse_duration_min(text: str) -> int:
    """Whole minutes in a duration, rounded up, at least one.

    Raises:
        ValueError: not a duration, or zero.
    """
    seconds = parse_duration_s(text)
    if seconds <= 0:
        raise ValueError("a duration must be longer than zero")
    return -(-seconds // 60)


def parse_memory_mb(text: str) -> int:
    """Whole mebibytes in ``500M``, ``200G``, ``1.5T`` (powers of 1024, as in Slurm), rounded up.

    Raises:
        ValueError: not an amount of memory, or zero.
    """
    match = _MEMORY.fullmatch(text.strip()) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise ValueError("not an amount of memory: write it like 500M, 200G or 1.5T")
    amount = float(match[1]) * _MEMORY_UNITS_MB[match[2].upper()]
    if amount <= 0:
        raise ValueError("an amount of memory must be more than zero")
    return -int(-amount // 1)


def format_minutes(minutes: int) -> str:
    """``D-HH:MM:00``, the form that every Slurm reads in one way only."""
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def format_duration(seconds: float) -> str:
    """``3d 4h``, ``2h 05m``, ``1m 20s``, ``7s``: for people, two units at most."""
    total = max(0, round(seconds))
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    if minutes:
        return f"{minutes}m {secs:02d}s"
    return f"{secs}s"


def format_bytes(size_bytes: int) -> str:
    """``1.5 GiB``: for people."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
