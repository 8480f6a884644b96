"""Parse and format times, durations and trackable resources (TRES) as Slurm writes them."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final

from hpcflow.model.usage import Usage

_NO_TIME: Final = frozenset({"", "n/a", "unknown", "none", "null", "(null)", "nan"})
_GPU: Final = "gres/gpu"
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)", re.ASCII)
_KIB: Final = {"": 1024, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4, "E": 1024**5}


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


def parse_count(text: str) -> int | None:
    """Return the number; None for ``UNLIMITED``, other words and a missing value."""
    return int(text) if text.isdecimal() else None


def parse_minutes(text: str) -> int | None:
    """Return a Slurm duration in minutes, rounded up; None means no limit."""
    seconds = parse_length_s(text)
    return None if seconds is None else -(-seconds // 60)


def parse_tres(text: str) -> Usage | None:
    """Parse ``cpu=8,gres/gpu:a100=4,mem=2000M,node=1``; None if there is no usage in it.

    Slurm has the number of all GPUs and, if the site tracks types, of each type. Memory without a
    unit is in MiB. Unknown and unreadable resources are skipped.
    """
    counts = tres_counts(text)
    mem_mb = counts.pop("mem", 0)
    if not counts and not mem_mb:
        return None
    gpus = {
        name.removeprefix(f"{_GPU}:"): count
        for name, count in counts.items()
        if name.startswith(f"{_GPU}:")
    }
    untyped = counts.get(_GPU, 0) - sum(gpus.values())
    if untyped > 0:
        gpus[""] = untyped
    return Usage(
        nodes=counts.get("node", 0),
        cpus=counts.get("cpu", 0),
        mem_mb=mem_mb,
        gpus=dict(sorted(gpus.items())),
    )


def tres_counts(text: str) -> dict[str, int]:
    """Return Slurm's resource name -> count; ``mem`` in MiB, also if it has no unit."""
    counts: dict[str, int] = {}
    for part in text.strip().split(","):
        name, _, value = part.partition("=")
        read = _COUNT.fullmatch(value.strip())
        if read is None:
            continue
        number, unit = float(read[1]), read[2]
        if name == "mem":
            counts[name] = round(number * _KIB[unit] / 1024)
        else:
            counts[name] = round(number * (1000 ** " KMGTPE".index(unit or " ")))
    return counts
