"""The lines of one rank, out of a log to which all ranks write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.storage.rank_lines import RankLines

LOG = b"""\
launcher: starting
[rank0]: loss 0.5
[rank1]: loss 0.6
[rank10]: loss 0.7
[rank1]:\x20
[default1]:of torchrun
01: of srun
1 epoch: not labelled
[rank1]: 0: not a second label
"""


@given(st.lists(st.integers(0, len(LOG)), max_size=5))
def test_lines_are_picked_wherever_the_log_is_cut(cuts: list[int]) -> None:
    ends = sorted([*cuts, len(LOG)])
    lines = RankLines(1)
    picked = b"".join(
        lines.pick(LOG[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)
    )
    assert picked == b"loss 0.6\n\nof torchrun\nof srun\n0: not a second label\n"
    assert lines.end() == b""


@pytest.mark.parametrize(("rank", "end"), [(1, b"loss"), (0, b"")])
def test_the_last_line_may_be_incomplete(rank: int, end: bytes) -> None:
    lines = RankLines(rank)
    assert lines.pick(b"[rank1]: loss") == b""
    assert lines.end() == end
