"""Durations and memory, as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.model.units import (
    format_minutes,
    parse_duration_min,
    parse_duration_s,
    parse_memory_mb,
    write_duration,
    write_memory,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("30min", 1800),
        ("4h", 4 * 3600),
        ("4 h", 4 * 3600),
        ("1d12h", 36 * 3600),
        ("1d 12h 30m", 36 * 3600 + 1800),
        ("2w", 14 * 86400),
        ("1.5h", 5400),
        ("1.1h", 3960),
        ("0.5s", 1),
        ("0s", 0),
        (" 4h ", 4 * 3600),
        ("04:00:00", 4 * 3600),
        ("1-12:00:00", 36 * 3600),
        ("1-12:30", 36 * 3600 + 1800),
        ("100:00:00", 360_000),
    ],
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "h", "4", "4x", "4h30", "-4h", "1:30", "00:90:00", "4H", "4 hours", "1e3s", "٣h", "1h\n2"],
)
def test_what_is_no_duration_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 30m, 4h or 1d12h"):
        parse_duration_s(text)


def test_a_bare_number_lacks_its_unit() -> None:
    with pytest.raises(ValueError, match="the unit is missing"):
        parse_duration_s("90")
    with pytest.raises(ValueError, match="the unit is missing"):
        parse_memory_mb("1.5")


@pytest.mark.parametrize("text", ["99999999999d", "10001d", "9" * 60 + "h"])
def test_a_duration_beyond_all_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="longer than 10000 days"):
        parse_duration_s(text)


def test_a_time_limit_is_rounded_up_to_minutes_and_is_not_zero() -> None:
    assert parse_duration_min("61s") == 2
    assert parse_duration_min("1s") == 1
    with pytest.raises(ValueError, match="longer than zero"):
        parse_duration_min("0h")


@pytest.mark.parametrize(
    ("text", "mb"),
    [
        ("500M", 500),
        ("500MB", 500),
        ("500MiB", 500),
        ("200G", 200 * 1024),
        ("200g", 200 * 1024),
        ("1.5T", 1536 * 1024),
        ("1K", 1),
        ("1025K", 2),
        ("0.1M", 1),
        ("16 G", 16 * 1024),
    ],
)
def test_an_amount_of_memory_is_read(text: str, mb: int) -> None:
    assert parse_memory_mb(text) == mb


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not an amount"),
        ("G", "not an amount"),
        ("4X", "not an amount"),
        ("-4G", "not an amount"),
        ("0G", "more than zero"),
        ("2000T", "more than 1024T"),
        ("9" * 60 + "T", "more than 1024T"),
        ("9" * 100 + "T", "not an amount"),
    ],
)
def test_what_is_no_amount_of_memory_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_memory_mb(text)


@given(st.integers(0, 10_000 * 86400))
def test_a_written_duration_is_read_back(seconds: int) -> None:
    assert parse_duration_s(write_duration(seconds)) == seconds


@given(st.integers(1, 1 << 30))
def test_a_written_amount_of_memory_is_read_back(mb: int) -> None:
    assert parse_memory_mb(write_memory(mb)) == mb


@given(st.integers(1, 10_000 * 1440))
def test_what_slurm_is_told_is_read_back(minutes: int) -> None:
    assert parse_duration_min(format_minutes(minutes)) == minutes


@pytest.mark.parametrize("parse", [parse_duration_s, parse_memory_mb])
@given(text=st.text(max_size=80) | st.from_regex(r"[0-9:.-]{1,9} ?[smhdwKMGT]?", fullmatch=True))
def test_any_text_is_read_or_refused(parse: Callable[[str], int], text: str) -> None:
    try:
        assert parse(text) >= 0
    except ValueError as error:
        assert str(error)
