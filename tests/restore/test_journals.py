"""Of two journals of one run, nothing is lost, and none is made up."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hpcflow.model.journal import Held, Released
from hpcflow.restore.journals import DivergedError, joined

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def _line(minutes: int) -> bytes:
    kind = Held if minutes % 2 else Released
    return kind(at=NOON + timedelta(minutes=minutes), by="ada").to_line().encode()


FIRST, SECOND, THIRD = (_line(minutes) for minutes in range(3))
#: What a file system may have in place of a file's end after a crash, or of all of it.
BLOCKS = b"\0" * 512 + b"\n"


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        (b"", FIRST, FIRST),
        (FIRST, b"", FIRST),
        (FIRST + SECOND, FIRST, FIRST + SECOND),
        (FIRST, FIRST + SECOND, FIRST + SECOND),
        (FIRST + SECOND[:9], FIRST + SECOND, FIRST + SECOND),
        (THIRD, FIRST + SECOND, FIRST + SECOND + THIRD),
        (BLOCKS, FIRST, FIRST),
        (b"{}\n[]\n", FIRST + SECOND, FIRST + SECOND),
        (SECOND[:-9], FIRST, FIRST),
    ],
    ids=[
        "purged",
        "never mirrored",
        "the mirror is behind",
        "the mirror is ahead",
        "torn",
        "begun anew after a purge",
        "blocks",
        "lines that say nothing",
        "one torn line",
    ],
)
def test_the_longer_one_counts(here: bytes, there: bytes, expected: bytes) -> None:
    assert joined(here, there) == expected


@pytest.mark.parametrize(
    ("here", "there", "line"),
    [
        (FIRST + SECOND, FIRST + THIRD, 2),
        (FIRST, SECOND, 1),
        (FIRST + BLOCKS, FIRST + SECOND, 2),
        (FIRST, BLOCKS, 1),
    ],
    ids=["two stories", "the one here is older", "blocks at the end", "blocks there"],
)
def test_where_both_say_something_else_a_person_judges(
    here: bytes, there: bytes, line: int
) -> None:
    with pytest.raises(DivergedError) as caught:
        joined(here, there)
    assert caught.value.line == line
