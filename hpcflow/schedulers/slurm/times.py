"""Parse and format times and durations as Slurm writes them."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final

_NO_TIME: Final = frozenset({"", "n/a", "unknown", "none", "null", "(null)", "nan"})


def parse_time(text: str) -> datetime | None:
    """Parse a time printed with ``TZ=UTC`` in the standard format; return None if it is none."""
    if text.strip().lower() in _NO_TIME:
        return None
    try:
        return datetime.fromisoformat(text.strip()).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def format_time(moment: datetime) -> str:
    """Format a time for options such as ``sacct --starttime``."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def parse_length_s(text: str) -> int | None:
    """Return ``1-12:00:00``, ``02:00:00``, ``30:00`` or ``30`` (minutes) in seconds.

    None means no limit.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip(), re.ASCII)
    if match is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    assert first is not None
    if days is not None:  # D-HH[:MM[:SS]]
        hours, minutes, seconds = first, second or 0, third or 0
    elif third is not None:  # HH:MM:SS
        hours, minutes, seconds = first, second or 0, third
    else:  # MM[:SS]
        hours, minutes, seconds = 0, first, second or 0
    return (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_minutes(text: str) -> int | None:
    """Return a Slurm duration in minutes, rounded up; None means no limit."""
    seconds = parse_length_s(text)
    return None if seconds is None else -(-seconds // 60)
