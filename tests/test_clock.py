"""Times as they stand in files: written in one form, read in those that RFC 3339 allows."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hpcflow.clock import from_text, to_text

_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05.678Z",
        "2026-01-02T03:04:05.678000Z",
        "2026-01-02 03:04:05.678+00:00",
        "2026-01-02T05:34:05.678+02:30",
    ],
)
def test_one_moment_in_many_forms(text: str) -> None:
    moment = from_text(text)
    assert moment == _MOMENT
    assert moment.tzinfo is timezone.utc
    assert to_text(moment) == "2026-01-02T03:04:05.678Z"


def test_a_time_of_another_zone_is_written_as_utc() -> None:
    zone = timezone(timedelta(hours=-8))
    assert to_text(_MOMENT.astimezone(zone)) == "2026-01-02T03:04:05.678Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Z",
        "2026-01-02T03:04:05",
        "2026-01-02Z",
        "2026-01-02T03:04:05+01:00Z",
        "2026-01-02T03:04:05ZZ",
        "2026-13-02T03:04:05Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "yesterday",
    ],
)
def test_what_is_no_time_with_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_text(text)
