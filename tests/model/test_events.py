"""Which lines of an event file are events: anybody's program may write there, and be cut off."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(more=st.dictionaries(st.text(st.characters()), _JSON, max_size=4), ascii=st.booleans())
def test_events_are_parsed_as_by_the_json_of_python(more: dict[str, Any], ascii: bool) -> None:
    said = {**more, "at": "2026-01-02T03:04:05.678Z", "event": "progress"}
    line = json.dumps(said, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    assert repr(parse_event(line)) == repr(json.loads(line.decode("utf-8", "surrogatepass")))
