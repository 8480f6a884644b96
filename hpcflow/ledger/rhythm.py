"""The distribution of the time between an attempt's signs of progress. Pure.

All times are from the job's own clock, and only their differences are used, because the login
node's clock may differ. :mod:`hpcflow.requeue.stalls.watch` measures how long a job has been
silent.

Stored in an attempt's ``report`` as JSON values, under ``rhythm``. A histogram in steps of 41 %
holds the median of millions of gaps in a few numbers, whatever the portions in which the file was
read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from hpcflow.clock import from_text

#: Events that only a running program writes; the job script writes ``started`` and ``exited``. A
#: program that never writes ``progress`` is not expected to write anything regularly.
SIGNS: Final = frozenset({"train_started", "progress", "checkpoint", "notice", "finished"})

#: Upper bounds of the histogram's classes in seconds, from half a second to some years.
_EDGES: Final = tuple(0.5 * 2 ** (half / 2) for half in range(60))


#: The classes' names by :func:`bisect_left`; the last one has no upper end.
_NAMES: Final = (*map(str, range(len(_EDGES))), str(len(_EDGES) - 1))


@dataclass(frozen=True)
class Rhythm:
    """The rhythm of one attempt, or of several.

    Attributes:
        signs: number of signs of progress.
        gaps: class of the histogram -> number of gaps between two signs.
        longest_s: the longest gap.
        starts: number of jobs that reached their first progress event.
        start_up_s: the longest time from the start of a job to that event.
    """

    signs: int = 0
    gaps: Mapping[int, int] = field(default_factory=dict)
    longest_s: float = 0.0
    starts: int = 0
    start_up_s: float = 0.0

    def __add__(self, other: Rhythm) -> Rhythm:
        gaps = Counter(self.gaps)
        gaps.update(other.gaps)
        return Rhythm(
            self.signs + other.signs,
            dict(gaps),
            max(self.longest_s, other.longest_s),
            self.starts + other.starts,
            max(self.start_up_s, other.start_up_s),
        )

    @property
    def median_s(self) -> float:
        """Return the median gap, rounded up to its class; 0 without gaps."""
        half, seen = sum(self.gaps.values()) / 2, 0
        for index in sorted(self.gaps):
            seen += self.gaps[index]
            if seen >= half:
                return _EDGES[index]
        return 0.0


def add_sign(report: dict[str, Any], kind: str, at: str) -> None:
    """Count a sign of progress at ``at`` by the job's clock; an invalid time adds no gap."""
    kept = report.get("rhythm")
    if kept is None:
        kept = report["rhythm"] = {}
    kept["signs"] = kept.get("signs", 0) + 1
    moment = _seconds(at)
    if kind == "progress" and not kept.get("has_begun"):
        kept["has_begun"] = True
        kept["starts"] = kept.get("starts", 0) + 1
        if moment is not None:
            start_up_s = round(moment - kept.get("from", moment), 3)
            kept["start_up_s"] = max(kept.get("start_up_s", 0.0), start_up_s)
    if moment is None:
        return
    before = kept.get("last")
    kept["last"] = moment
    if before is None:
        return
    if (gap_s := round(moment - before, 3)) >= 0:  # ignore a clock that was set back
        name = _NAMES[bisect_left(_EDGES, gap_s)]
        gaps = kept.setdefault("gaps", {})
        gaps[name] = gaps.get(name, 0) + 1
        if gap_s >= kept.get("longest_s", 0.0):
            kept["longest_s"] = gap_s


def begin(report: dict[str, Any], at: str) -> None:
    """Record a start or restart of the job: the time before it is not a gap."""
    kept = report.setdefault("rhythm", {})
    for what in ("last", "from", "has_begun"):
        kept.pop(what, None)
    if (moment := _seconds(at)) is not None:
        kept["from"] = moment


def has_begun(report: Mapping[str, Any]) -> bool:
    """Return whether there was a progress event since the job last started."""
    return "has_begun" in report.get("rhythm", {})


def signs_of(report: Mapping[str, Any]) -> int:
    return int(report.get("rhythm", {}).get("signs", 0))


def rhythm_of(reports: Iterable[Mapping[str, Any]]) -> Rhythm:
    rhythm = Rhythm()
    for report in reports:
        kept = report.get("rhythm", {})
        rhythm += Rhythm(
            kept.get("signs", 0),
            {int(index): count for index, count in kept.get("gaps", {}).items()},
            kept.get("longest_s", 0.0),
            kept.get("starts", 0),
            kept.get("start_up_s", 0.0),
        )
    return rhythm


def _seconds(at: str) -> float | None:
    """Return the seconds since 1970; None if ``at`` is not a time. Nearly all times are exact."""
    try:
        rest = at[17:19] + at[20:23]
        is_exact = len(at) == 24 and at[16] == ":" and at[19] == "." and at[23] == "Z"
        if is_exact and rest.isdecimal() and rest.isascii() and rest < "60":
            return (_minute_us(at[:16]) + 1000 * int(rest)) / 1_000_000
        return from_text(at).timestamp()
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _minute_us(minute: str) -> int:
    """Return the microseconds since 1970 of a minute, such as ``2026-03-01T12:00``."""
    return 1_000_000 * round(from_text(f"{minute}:00.000Z").timestamp())
