"""Two journals of one run are compared line by line."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hpcflow.model.journal import Held, Released
from hpcflow.restore.journals import first_difference

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def _line(minutes: int) -> bytes:
    kind = Held if minutes % 2 else Released
    return kind(at=NOON + timedelta(minutes=minutes), by="ada").to_line().encode()


FIRST, SECOND, THIRD = (_line(minutes) for minutes in range(3))
#: What a file system may have in place of a file's end after a crash, or of all of it.
BLOCKS = b"\0" * 512 + b"\n"


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (b"", FIRST, None),
        (FIRST + SECOND, FIRST, None),
        (FIRST + SECOND[:9], FIRST + THIRD, None),
        (SECOND[:-9], FIRST, None),
        (FIRST + SECOND, FIRST + THIRD, 2),
        (FIRST, SECOND, 1),
        (FIRST + BLOCKS, FIRST + SECOND, 2),
        (FIRST, BLOCKS, 1),
    ],
    ids=[
        "lost",
        "one is behind",
        "torn",
        "one torn line",
        "two stories",
        "from the first line on",
        "blocks at the end",
        "blocks",
    ],
)
def test_the_first_line_that_differs_is_found(one: bytes, other: bytes, line: int | None) -> None:
    assert first_difference(one, other) == line
    assert first_difference(other, one) == line
