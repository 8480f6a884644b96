"""Time as a dependency: code that needs the time or has to wait takes a :class:`Clock`.

A steerable clock for tests is :class:`hpcflow.testing.clock.FakeClock`.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Final, Protocol

#: A clock that is years ahead for a while must end or delete nothing for good: what only the time
#: says is found twice, so far apart, before it counts.
CONFIRMED_AFTER: Final = timedelta(hours=1)

#: No file has a time before or after these: at the years 1 and 9999, Python can compute with none.
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=timezone.utc)
LATEST: Final = datetime(9000, 1, 1, tzinfo=timezone.utc)
_FIRST_YEAR: Final = EARLIEST.year
_LAST_YEAR: Final = LATEST.year


class Clock(Protocol):
    """What the rest of hpcflow may know of time."""

    def now(self) -> datetime:
        """The time, aware, in UTC, to the millisecond: as precise as every file keeps it."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        now = datetime.now(timezone.utc)
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def to_text(moment: datetime) -> str:
    """RFC 3339 with milliseconds and ``Z``, as it stands in every file that hpcflow writes."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    utc = moment if moment.tzinfo is timezone.utc else moment.astimezone(timezone.utc)
    return utc.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def from_text(text: str) -> datetime:
    """The inverse of :func:`to_text`; any RFC 3339 time with a zone is read.

    Raises:
        ValueError: not such a time, or not between :data:`EARLIEST` and :data:`LATEST`.
    """
    if text.endswith("Z"):  # as nearly all are, and a tick reads ten thousands of them
        moment = datetime.fromisoformat(f"{text[:-1]}+00:00")
    else:
        moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone: {text!r}")
    if moment.tzinfo is not timezone.utc:
        try:
            moment = moment.astimezone(timezone.utc)
        except OverflowError:
            raise ValueError(f"no time that a file has: {text!r}") from None
    if not _FIRST_YEAR <= moment.year < _LAST_YEAR:  # faster than to compare times
        raise ValueError(f"no time that a file has: {text!r}")
    return moment


def later(moment: datetime, delay: timedelta) -> datetime:
    """Return ``moment + delay``, limited so that :func:`from_text` reads it."""
    return min(moment, LATEST - 2 * delay) + delay


def of_file(seconds: float) -> datetime:
    """The time of a file, from its ``st_mtime``; a damaged one may be of any year, and is moved
    to the nearest that :func:`from_text` reads."""
    within = min(max(seconds, EARLIEST.timestamp()), LATEST.timestamp() - 1)
    return datetime.fromtimestamp(within, timezone.utc)
