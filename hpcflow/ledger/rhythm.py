"""The distribution of the time between an attempt's signs of progress. Pure.

All times here are those of the job's own clock, and only differences between them are used: what
the login side calls "now" is another machine's. How long a job has been silent is therefore found
out elsewhere (:mod:`hpcflow.requeue.stall_watch`).

Kept in an attempt's ``report`` as JSON values, under ``rhythm``; a histogram in steps of 41 % gives
the median of millions of gaps in a few numbers, and the same whatever the portions in which the
file was read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from hpcflow.clock import from_text

#: The events that only a program that goes on can write. ``started`` and ``exited`` are the job
#: script's. A program that never writes the one called progress, but a checkpoint every few hours,
#: has promised nobody to write anything.
SIGNS: Final = frozenset({"train_started", "progress", "checkpoint", "notice", "finished"})

#: Upper ends of the histogram's classes in seconds, from half a second to some years.
_EDGES: Final = tuple(0.5 * 2 ** (half / 2) for half in range(60))


#: The classes' names by :func:`bisect_left`; the last one has no upper end.
_NAMES: Final = (*map(str, range(len(_EDGES))), str(len(_EDGES) - 1))


@dataclass(frozen=True)
class Rhythm:
    """What is known of the rhythm of one attempt, or of several.

    Attributes:
        signs: how many signs of progress there were.
        gaps: class of the histogram -> gaps between two signs in it.
        longest_s: the longest gap.
        starts: how many jobs came as far as their first progress event.
        start_up_s: the longest time from the start of a job to that event.
    """

    signs: int = 0
    gaps: Mapping[int, int] = field(default_factory=dict)
    longest_s: float = 0.0
    starts: int = 0
    start_up_s: float = 0.0

    def __add__(self, other: Rhythm) -> Rhythm:
        """The rhythm of both together."""
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
        """The median gap, rounded up to its class; 0 where there is none."""
        half, seen = sum(self.gaps.values()) / 2, 0
        for index in sorted(self.gaps):
            seen += self.gaps[index]
            if seen >= half:
                return _EDGES[index]
        return 0.0


def add_sign(report: dict[str, Any], kind: str, at: str) -> None:
    """Count a sign of progress that the job wrote at ``at``; a time that is none tells no gap."""
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
    if (gap_s := round(moment - before, 3)) >= 0:  # a clock that was set back tells nothing
        name = _NAMES[bisect_left(_EDGES, gap_s)]
        gaps = kept.setdefault("gaps", {})
        gaps[name] = gaps.get(name, 0) + 1
        if gap_s >= kept.get("longest_s", 0.0):
            kept["longest_s"] = gap_s


def begin(report: dict[str, Any], at: str) -> None:
    """The job starts, for the first time or again: what it waited for in between is no gap."""
    kept = report.setdefault("rhythm", {})
    for what in ("last", "from", "has_begun"):
        kept.pop(what, None)
    if (moment := _seconds(at)) is not None:
        kept["from"] = moment


def has_begun(report: Mapping[str, Any]) -> bool:
    """Whether there was a progress event since the job last started."""
    return "has_begun" in report.get("rhythm", {})


def signs_of(report: Mapping[str, Any]) -> int:
    """How many signs of progress there were."""
    return int(report.get("rhythm", {}).get("signs", 0))


def rhythm_of(reports: Iterable[Mapping[str, Any]]) -> Rhythm:
    """The rhythm of all these attempts together."""
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
