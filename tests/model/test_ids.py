"""Names that Slurm gives, as hpcflow reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.model.ids import array_name, is_array_name, job_name, parse_job_name, sluid_number
from tests.requeue.restarts import sluid_of


def test_a_sluid_is_the_number_of_the_record() -> None:
    """As ``sacct --format=SLUID,DBIndex`` of Slurm 26.05.5 printed them."""
    assert sluid_number("s5P1M8J202S900") == 6559080061518783488
    assert sluid_number("s5P1M8J206TM00") == 6559080061523021824


def test_the_name_of_a_job_begins_with_that_of_its_run() -> None:
    run_id = "digits-20260301-abcdefgh"
    assert job_name(run_id, 12).startswith("digits-")
    assert parse_job_name(job_name(run_id, 12)) == (run_id, 12)
    assert array_name(run_id, 2).startswith("digits-")
    assert is_array_name(array_name(run_id, 2))


def test_jobs_that_an_older_hpcflow_submitted_are_known_by_their_names() -> None:
    assert parse_job_name("hpcflow:digits-20260301-abcdefgh:3") == ("digits-20260301-abcdefgh", 3)
    assert is_array_name("hpcflow-array:digits-20260301-abcdefgh:1")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "digits",
        "digits:1",
        "digits-20260301-abcdefgh",
        "digits-20260301-abcdefgh:",
        "digits-20260301-abcdefgh:one",
        "digits-20260301-abcdefg1:1",
        "my digits-20260301-abcdefgh:1",
        "hpcflow-digits-20260301-abcdefgh:x",
        "hpcflow:hpcflow:digits-20260301-abcdefgh:1",
        array_name("digits-20260301-abcdefgh", 1),
    ],
)
def test_no_other_name_is_that_of_an_attempt(name: str) -> None:
    assert parse_job_name(name) is None


@given(st.integers(0, 2**64 - 1))
def test_every_sluid_is_read(number: int) -> None:
    assert sluid_number(sluid_of(number)) == number


@given(st.one_of(st.text(max_size=20), st.from_regex(r"s[0-9A-Z]{13}"), st.none(), st.integers()))
def test_what_is_no_sluid_is_none(text: object) -> None:
    number = sluid_number(text)
    assert number is None or sluid_of(number) == text
