"""Time as a dependency: code that needs the time or has to wait takes a :class:`Clock`.

A steerable clock for tests is :class:`hpcflow.testing.clock.FakeClock`.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Final, Protocol

#: A clock may be years ahead for a while. So an irreversible act that depends only on the time
#: needs two observations this far apart.
CONFIRMED_AFTER: Final = timedelta(hours=1)

#: Limits of the times in files. Near the years 1 and 9999, Python's arithmetic overflows.
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=timezone.utc)
LATEST: Final = datetime(9000, 1, 1, tzinfo=timezone.utc)
_FIRST_YEAR: Final = EARLIEST.year
_LAST_YEAR: Final = LATEST.year


class Clock(Protocol):
    """The time as hpcflow uses it."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC, in whole milliseconds as in files."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes backwards."""
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
    """Return RFC 3339 with milliseconds and ``Z``, the format of all files that hpcflow writes."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    utc = moment if moment.tzinfo is timezone.utc else moment.astimezone(timezone.utc)
    return utc.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def from_text(text: str) -> datetime:
    """Parse any RFC 3339 time with a zone.

    Raises:
        ValueError: not such a time, or not between :data:`EARLIEST` and :data:`LATEST`.
    """
    if text.endswith("Z"):  # the fast path: a tick parses tens of thousands of times
        moment = datetime.fromisoformat(f"{text[:-1]}+00:00")
    else:
        moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone: {text!r}")
    if moment.tzinfo is not timezone.utc:
        try:
            moment = moment.astimezone(timezone.utc)
        except OverflowError:
            raise ValueError(f"a time out of range: {text!r}") from None
    if not _FIRST_YEAR <= moment.year < _LAST_YEAR:  # faster than to compare times
        raise ValueError(f"a time out of range: {text!r}")
    return moment


def later(moment: datetime, delay: timedelta) -> datetime:
    """Return ``moment + delay``, limited so that :func:`from_text` reads it."""
    return min(moment, LATEST - 2 * delay) + delay


def of_file(seconds: float) -> datetime:
    """Return the time of a file from its ``st_mtime``, limited to what :func:`from_text` reads.

    A damaged file may have a time in any year.
    """
    within = min(max(seconds, EARLIEST.timestamp()), LATEST.timestamp() - 1)
    return datetime.fromtimestamp(within, timezone.utc)
