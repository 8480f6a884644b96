"""Whichever portions a file arrives in, the same lines come out of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.storage import lines
from hpcflow.storage.lines import Position, split_lines


def test_a_line_that_is_still_being_written_waits() -> None:
    assert split_lines(b"one\ntw", Position()) == ([b"one"], Position(4))
    assert split_lines(b"two\n", Position(4)) == ([b"two"], Position(8))


def test_an_endless_line_is_skipped_once_and_without_being_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 4)
    found, at = split_lines(b"xxxxxxxx", Position())
    assert (found, at) == ([], Position(8, in_long_line=True, skipped_lines=1))
    found, at = split_lines(b"xxx", at)
    assert (found, at) == ([], Position(11, in_long_line=True, skipped_lines=1))
    assert split_lines(b"x\nok\n", at) == ([b"ok"], Position(16, False, 1))


@given(
    st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r", b"ccccc"])), st.lists(st.integers(1, 9))
)
def test_portions_do_not_matter(parts: list[bytes], sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "MAX_LINE_BYTES", 4)
        data = b"".join(parts)
        at_once = split_lines(data, Position())

        found: list[bytes] = []
        at, shown = Position(), 0
        for size in [*sizes, len(data)]:
            shown = min(len(data), shown + size)
            new, at = split_lines(data[at.offset_bytes : shown], at)
            found += new

    assert (found, at) == at_once
    assert found == [line for line in data.split(b"\n")[:-1] if 0 < len(line) <= 4]
