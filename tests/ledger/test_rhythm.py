"""The times of events, from which the rhythm of an attempt is made."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.clock import EARLIEST, LATEST, from_text, to_text
from hpcflow.ledger.rhythm import _seconds


@given(
    st.datetimes(
        EARLIEST.replace(tzinfo=None),
        LATEST.replace(tzinfo=None) - timedelta(seconds=1),
        timezones=st.just(timezone.utc),
        allow_imaginary=False,
    )
)
def test_a_time_as_hpcflow_writes_it_is_read_exactly(moment: datetime) -> None:
    text = to_text(moment)
    assert _seconds(text) == from_text(text).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:00:05.5Z",
        "2026-03-01T12:00:05+01:00",
        "2026-03-01T12:00:05.123456Z",
    ],
)
def test_other_times_with_a_zone_are_read_too(text: str) -> None:
    assert _seconds(text) == from_text(text).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-03-01T12:00:60.000Z",
        "2026-03-01T12:60:00.000Z",
        "2026-03-01T12:00:05.000",
        "2026-03-01T12:00: 5.000Z",
        "2026-03-01T12:00:+5.000Z",
        "2026-03-01T12:00:0\u0665.000Z",
        "9999-12-31T23:59:59.999Z",
    ],
)
def test_what_is_not_a_time_has_no_seconds(text: str) -> None:
    assert _seconds(text) is None
