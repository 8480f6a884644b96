"""The lines of one rank, out of a log to which all ranks write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.storage.rank_lines import RankLines, has_several_ranks

LOG = b"""\
launcher: starting
[rank0]: loss 0.5
[rank1]: loss 0.6
[rank10]: loss 0.7
[rank1]:\x20
[default1]:of torchrun
01: of srun
 1: of an older srun
1 epoch: not labelled
[rank1]: 0: not a second label
"""


@given(st.lists(st.integers(0, len(LOG)), max_size=5))
def test_lines_are_picked_wherever_the_log_is_cut(cuts: list[int]) -> None:
    ends = sorted([*cuts, len(LOG)])
    lines = RankLines(1)
    picked = [
        line
        for begin, end in zip([0, *ends], ends, strict=False)
        for line in lines.pick(LOG[begin:end])
    ]
    texts = ["loss 0.6", "", "of torchrun", "of srun", "of an older srun", "0: not a second label"]
    assert picked == [f"{text}\n".encode() for text in texts]
    assert lines.end() == []


@pytest.mark.parametrize(("rank", "end"), [(1, [b"loss"]), (0, [])])
def test_the_last_line_may_be_incomplete(rank: int, end: list[bytes]) -> None:
    lines = RankLines(rank)
    assert lines.pick(b"[rank1]: loss") == []
    assert lines.end() == end


@pytest.mark.parametrize(
    ("script", "is_so"),
    [
        ("export WORLD_SIZE=8 LOCAL_WORLD_SIZE=4\n", True),
        ("export WORLD_SIZE=1 LOCAL_WORLD_SIZE=1\n", False),
        ("  --nnodes=2 --nproc-per-node=1 --max-restarts=0\n", True),
        ("  --nnodes=1 --nproc-per-node=1 --max-restarts=0\n", False),
        ("true\n", False),
    ],
)
def test_a_script_says_whether_it_starts_several_ranks(script: str, is_so: bool) -> None:
    assert has_several_ranks(script) is is_so
