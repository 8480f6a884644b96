"""Which row of squeue speaks of which job."""

from __future__ import annotations

import pytest

from hpcflow.schedulers.slurm.job_ids import base, covers, is_job_id, leader, tasks_of


@pytest.mark.parametrize("text", ["1", "123_4", "123_[0-9,12%2]", "123_[1-9:2]", "123+1"])
def test_slurm_gives_such_ids(text: str) -> None:
    assert is_job_id(text)
    assert base(text) in ("1", "123")


@pytest.mark.parametrize("text", ["", "0", "-1", "--user=x", "12;3", "a", "1_", "1_x", "٣", "1\n"])
def test_slurm_gives_no_such_ids(text: str) -> None:
    assert not is_job_id(text)


@pytest.mark.parametrize(
    ("listed", "wanted", "speaks"),
    [
        ("123", "123", True),
        ("123", "1234", False),
        ("123_4", "123_4", True),
        ("123_4", "123", True),
        ("123_4", "123_5", False),
        ("123_[0-9,12%2]", "123_9", True),
        ("123_[0-9,12%2]", "123_12", True),
        ("123_[0-9,12%2]", "123_2", True),
        ("123_[0-9,12%2]", "123_11", False),
        ("123_[1-9:2]", "123_3", True),
        ("123_[1-9:2]", "123_4", False),
        ("123_[0-9]", "124_3", False),
        ("123+1", "123", True),
        ("123+1", "123+0", False),
        ("123_[0-9...]", "123_3", False),
    ],
)
def test_a_row_covers_a_job(listed: str, wanted: str, speaks: bool) -> None:
    assert covers(listed, wanted) is speaks


@pytest.mark.parametrize(
    ("row", "tasks"),
    [
        ("123", []),
        ("123_4", [4]),
        ("123_[0-2,7%2]", [0, 1, 2, 7]),
        ("123_[1-9:4]", [1, 5, 9]),
        ("123_[0-2...]", [0]),
        ("123+1", []),
        ("123_[x]", []),
    ],
)
def test_a_row_of_an_array_says_which_tasks_it_is_of(row: str, tasks: list[int]) -> None:
    assert tasks_of(row) == tasks


@pytest.mark.parametrize(
    ("listed", "job_id"), [("123+0", "123"), ("123+10", "123+10"), ("123_0", "123_0"), ("1", "1")]
)
def test_the_first_component_is_the_job(listed: str, job_id: str) -> None:
    assert leader(listed) == job_id
