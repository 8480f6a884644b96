"""What the ranks of a training do together before it begins; see three_ranks.py for how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.harness import RunFolder, start


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three ranks saw."""
    folder = RunFolder(tmp_path_factory.mktemp("three"))
    training = start(folder, 3, PROGRAM=Path(__file__).with_name("three_ranks.py"))
    assert training.exit_codes() == [0, 0, 0], training.log()
    return [json.loads((folder.path / f"seen-{rank}.json").read_text()) for rank in range(3)]


def test_buckets_are_settled_without_touching_what_has_other_gradients(
    seen: list[dict[str, Any]],
) -> None:
    """More than two ranks settle them, before the first train step."""
    for rank in seen:
        assert rank["gradients_of_sparse_embeddings"] == [
            "torch.sparse_coo",
            *["torch.strided"] * 2,
        ]
        assert rank["gradients_of_complex_numbers"] == ["torch.strided"] * 2


@pytest.mark.parametrize("how", ["objects_that_rank_0_has_alone", "objects_in_another_order"])
def test_ranks_that_name_different_objects_are_told_so_all_of_them(
    seen: list[dict[str, Any]], how: str
) -> None:
    """Or their exchanges would be out of step, and end in nonsense or never."""
    for rank in seen:
        text, agreed = rank[how]
        assert "all ranks must name the same objects in the same order" in text
        assert agreed == 2


def test_a_rank_that_writes_for_an_hour_is_waited_for(seen: list[dict[str, Any]]) -> None:
    assert all(rank["patience"] >= 24 * 3600 for rank in seen)
