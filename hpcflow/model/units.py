"""Convert human units, ``4h`` and ``200G``, to integers, and back.

As in Slurm, time limits are whole minutes, and memory is in mebibytes.
"""

from __future__ import annotations

import math
import re
from typing import Final

_DURATION_UNITS_S: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_DURATION_PART: Final = re.compile(rf"({_NUMBER}) *(min|[smhdw])", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_NUMBER} *(?:min|[smhdw]) *)+", re.ASCII)
_SLURM_TIME: Final = re.compile(
    r"(?:([0-9]{1,5})-)?([0-9]{1,5}):([0-5]?[0-9])(?::([0-5]?[0-9]))?", re.ASCII
)
_MEMORY: Final = re.compile(rf"({_NUMBER}) *([KMGTkmgt])(?:i?[Bb])?", re.ASCII)
_MEMORY_UNITS_MB: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0}

#: Patterns for a JSON Schema, for editors.
DURATION_PATTERN: Final = (
    rf"^(?:(?:{_NUMBER} *(?:min|[smhdw]) *)+"
    r"|[0-9]{1,5}-[0-9]{1,5}:[0-5]?[0-9](?::[0-5]?[0-9])?"
    r"|[0-9]{1,5}:[0-5]?[0-9]:[0-5]?[0-9])$"
)
MEMORY_PATTERN: Final = rf"^{_MEMORY.pattern}$"

#: Longer text is never valid and is not matched.
_MAX_CHARS: Final = 64
#: Enough for the node-time of a large cluster. A larger value is a mistake, and sums would
#: overflow.
_MAX_DURATION_S: Final = 10_000 * 86400
_MAX_MEMORY_MB: Final = 1 << 30


def parse_duration_s(text: str) -> int:
    """Return the seconds in ``90s``, ``30m``, ``1d12h``, or Slurm's ``D-HH:MM:SS``, ``HH:MM:SS``.

    ``D-HH:MM`` is read as in Slurm. A bare ``MM:SS`` is refused, because many people mean hours and
    minutes by it. Fractions of a second are rounded up.

    Raises:
        ValueError: not a duration, or more than 10,000 days; the message shows an example.
    """
    seconds = _duration_s(text.strip()) if len(text) <= _MAX_CHARS else None
    if seconds is None:
        hint = _without_unit(text, "30m, 4h or 1d12h")
        raise ValueError(f"not a duration; {hint}")
    if seconds > _MAX_DURATION_S:
        raise ValueError("longer than 10000 days")
    return math.ceil(seconds)


def _duration_s(text: str) -> float | None:
    if _DURATION.fullmatch(text):
        parts = _DURATION_PART.findall(text)
        # To the microsecond, so that 1.1h is 3960 s in spite of float errors.
        return round(sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in parts), 6)
    clock = _SLURM_TIME.fullmatch(text)
    if clock and (clock[1] or clock[4]):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return None


def parse_duration_min(text: str) -> int:
    """Return a duration in whole minutes, rounded up; ValueError for zero or no duration."""
    seconds = parse_duration_s(text)
    if seconds <= 0:
        raise ValueError("must be longer than zero")
    return -(-seconds // 60)


def parse_memory_mb(text: str) -> int:
    """Return ``500M``, ``200G``, ``1.5T`` in mebibytes (powers of 1024, as in Slurm), rounded up.

    Raises:
        ValueError: not an amount of memory, zero, or more than a pebibyte.
    """
    match = _MEMORY.fullmatch(text.strip()) if len(text) <= _MAX_CHARS else None
    if match is None:
        hint = _without_unit(text, "500M, 200G or 1.5T")
        raise ValueError(f"not an amount of memory; {hint}")
    amount = math.ceil(round(float(match[1]) * _MEMORY_UNITS_MB[match[2].upper()], 6))
    if amount <= 0:
        raise ValueError("must be more than zero")
    if amount > _MAX_MEMORY_MB:
        raise ValueError("more than 1024T")
    return amount


def _without_unit(text: str, examples: str) -> str:
    is_bare = text.strip().replace(".", "", 1).isdecimal()
    return f"{'the unit is missing: ' if is_bare else ''}write it like {examples}"


def write_duration(seconds: int) -> str:
    """Return the inverse of :func:`parse_duration_s`, in one unit: ``90s``, ``10m``, ``36h``."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _DURATION_UNITS_S[unit] == 0:
            return f"{seconds // _DURATION_UNITS_S[unit]}{unit}"
    return f"{seconds}s"


def write_memory(mb: int) -> str:
    """Return the inverse of :func:`parse_memory_mb`, in one unit: ``500M``, ``200G``, ``2T``."""
    for unit, factor in (("T", 1 << 20), ("G", 1 << 10)):
        if mb and mb % factor == 0:
            return f"{mb // factor}{unit}"
    return f"{mb}M"


def format_minutes(minutes: int) -> str:
    """Return ``D-HH:MM:00``, which every Slurm version reads the same way."""
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def format_duration(seconds: float) -> str:
    """Return ``3d 4h``, ``2h 05m``, ``1m 20s``, ``7s``: for people, two units at most."""
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
    """Return a size for people, such as ``1.5 GiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def counted(number: int, word: str) -> str:
    """Return ``1 run``, ``2 runs``: for people."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
