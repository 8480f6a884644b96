"""Which checkpoints a store had, from when to when: what is charged for keeping them."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.clock import to_text
from hpcflow.mirror.records import Kept, Read, history_of

URL = "s3://lab/ada"
BEGIN = datetime(2026, 7, 1, tzinfo=timezone.utc)


def at(hours: float) -> datetime:
    return BEGIN + timedelta(hours=hours)


def line(what: str, hours: float = 0, train_step: int = 400, **more: Any) -> bytes:
    said = {"at": to_text(at(hours)), "what": what, "url": URL, "train_step": train_step}
    return json.dumps({**said, "size_bytes": 9000, **more}).encode()


def kept(*lines: bytes) -> list[Kept]:
    return history_of(lines).kept


def test_from_when_all_of_it_was_there_until_it_was_removed() -> None:
    assert kept(line("began", 0), line("mirrored", 1), line("removed", 5)) == [
        Kept(URL, 400, 9000, at(1), at(5))
    ]
    assert kept(line("mirrored", 1)) == [Kept(URL, 400, 9000, at(1))]
    assert kept(line("began", 0), line("failed", 1)) == []


def test_what_is_found_damaged_is_charged_no_longer_and_what_is_sent_again_anew() -> None:
    found = kept(line("mirrored", 1), line("failed", 3), line("mirrored", 4, size_bytes=7))
    assert found == [Kept(URL, 400, 9000, at(1), at(3)), Kept(URL, 400, 7, at(4))]


def test_one_that_replaces_another_of_its_train_step_ends_it() -> None:
    found = kept(line("mirrored", 1), line("mirrored", 3, size_bytes=7))
    assert found == [Kept(URL, 400, 9000, at(1), at(3)), Kept(URL, 400, 7, at(3))]


def test_stores_and_train_steps_are_told_apart() -> None:
    other = line("mirrored", 1, url="s3://else")
    found = kept(line("mirrored", 1), other, line("removed", 2), line("mirrored", 3, 500))
    assert [(each.url, each.train_step, each.end) for each in found] == [
        (URL, 400, at(2)),
        ("s3://else", 400, None),
        (URL, 500, None),
    ]


def test_what_was_read_to_verify_it_was_fetched() -> None:
    assert history_of([line("read", 2)]).read == [Read(URL, 400, 9000, at(2))]


@pytest.mark.parametrize(
    "bad", [b"{", b"[]", b"7", line("mirrored", size_bytes=-1), line("mirrored", at="x")]
)
def test_a_line_that_is_none_says_nothing(bad: bytes) -> None:
    assert kept(line("mirrored", 1), bad) == kept(line("mirrored", 1))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["began", "mirrored", "failed", "removed"]),
            st.floats(0, 100),
            st.integers(1, 3),
        )
    )
)
def test_no_checkpoint_is_there_twice_at_a_time(said: list[tuple[str, float, int]]) -> None:
    said.sort(key=lambda each: each[1])
    found = kept(*(line(what, hours, step) for what, hours, step in said))
    for step in (1, 2, 3):
        own = [each for each in found if each.train_step == step]
        assert all(one.end is not None for one in own[:-1])
        for one, other in itertools.pairwise(own):
            assert one.end is not None
            assert one.begin <= one.end <= other.begin
