"""Convert human units, ``4h`` and ``200G``, to integers, and back.

Time limits are whole minutes, because that is what Slurm counts them in; memory is mebibytes,
because that is what ``--mem`` counts in.
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

#: The same as patterns of a JSON Schema, for editors.
DURATION_PATTERN: Final = (
    rf"^(?:(?:{_NUMBER} *(?:min|[smhdw]) *)+"
    r"|[0-9]{1,5}-[0-9]{1,5}:[0-5]?[0-9](?::[0-5]?[0-9])?"
    r"|[0-9]{1,5}:[0-5]?[0-9]:[0-5]?[0-9])$"
)
MEMORY_PATTERN: Final = rf"^{_MEMORY.pattern}$"

#: Longest text that is looked at; anything longer is nonsense and is not worth a regex's time.
_MAX_CHARS: Final = 64
#: Room for the node-time of a large cluster. Beyond it is a slip, and sums would overflow.
_MAX_DURATION_S: Final = 10_000 * 86400
#: 1 PiB; no node has that.
_MAX_MEMORY_MB: Final = 1 << 30


def parse_duration_s(text: str) -> int:
    """Seconds in ``90s``, ``30m``, ``4h``, ``1d12h``, or Slurm's ``D-HH:MM:SS``, ``HH:MM:SS``.

    ``D-HH:MM`` is read as Slurm reads it; a bare ``MM:SS`` is refused, since half of all people
    mean hours and minutes by it. A part of a second counts as a whole one.

    Raises:
        ValueError: not a duration, or more than 10,000 days; the text says what one looks like.
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
        # To the microsecond: 1.1h is 3960 s, however floats see it.
        return round(sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in parts), 6)
    clock = _SLURM_TIME.fullmatch(text)
    if clock and (clock[1] or clock[4]):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return None


def parse_duration_min(text: str) -> int:
    """Whole minutes in a duration, rounded up, at least one.

    Raises:
        ValueError: not a duration, or zero.
    """
    seconds = parse_duration_s(text)
    if seconds <= 0:
        raise ValueError("must be longer than zero")
    return -(-seconds // 60)


def parse_memory_mb(text: str) -> int:
    """Whole mebibytes in ``500M``, ``200G``, ``1.5T`` (powers of 1024, as in Slurm), rounded up.

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
    """The inverse of :func:`parse_duration_s`, in one unit: ``90s``, ``10m``, ``36h``, ``2d``."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _DURATION_UNITS_S[unit] == 0:
            return f"{seconds // _DURATION_UNITS_S[unit]}{unit}"
    return f"{seconds}s"


def write_memory(mb: int) -> str:
    """The inverse of :func:`parse_memory_mb`, in one unit: ``500M``, ``200G``, ``2T``."""
    for unit, factor in (("T", 1 << 20), ("G", 1 << 10)):
        if mb and mb % factor == 0:
            return f"{mb // factor}{unit}"
    return f"{mb}M"


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


def counted(number: int, word: str) -> str:
    """``1 run``, ``2 runs``: for people."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
