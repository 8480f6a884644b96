"""Which lines of an event file are events: anybody's program may write there, and be cut off."""

from __future__ import annotations

import math

import pytest

from hpcflow.model.events import MAX_LINE_BYTES, parse_event

_EVENT = b'{"at": "2026-01-02T03:04:05.678Z", "event": "progress", "train_step": 7}'


@pytest.mark.parametrize("line", [_EVENT, _EVENT + b"\r", b" \t" + _EVENT + b" \n"])
def test_blanks_around_an_event_do_not_matter(line: bytes) -> None:
    event = parse_event(line)
    assert event is not None
    assert event["train_step"] == 7


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\r",
        _EVENT[:-1],
        _EVENT + _EVENT,
        _EVENT + b" x",
        b"\xff" + _EVENT,
        b"[" * 100_000,
        b"[]",
        b'"progress"',
        b'{"event": "progress", "train_step": 7}',
        b'{"at": 5, "event": "progress"}',
        b'{"at": "2026-01-02T03:04:05.678Z", "event": "party"}',
        b'{"at": "2026-01-02T03:04:05.678Z", "event": ["progress"]}',
        _EVENT + b" " * MAX_LINE_BYTES,
    ],
)
def test_what_is_torn_foreign_or_too_long_is_no_event(line: bytes) -> None:
    assert parse_event(line) is None


def test_a_loss_that_is_no_number_is_still_an_event() -> None:
    event = parse_event(_EVENT[:-1] + b', "metrics": {"loss": NaN}}')
    assert event is not None
    assert math.isnan(event["metrics"]["loss"])
