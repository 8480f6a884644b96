"""Names that Slurm gives, as hpcflow reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpcflow.model.ids import sluid_number
from tests.requeue.restarts import sluid_of


def test_a_sluid_is_the_number_of_the_record() -> None:
    """As ``sacct --format=SLUID,DBIndex`` of Slurm 26.05.5 printed them."""
    assert sluid_number("s5P1M8J202S900") == 6559080061518783488
    assert sluid_number("s5P1M8J206TM00") == 6559080061523021824


@given(st.integers(0, 2**64 - 1))
def test_every_sluid_is_read(number: int) -> None:
    assert sluid_number(sluid_of(number)) == number


@given(st.one_of(st.text(max_size=20), st.from_regex(r"s[0-9A-Z]{13}"), st.none(), st.integers()))
def test_what_is_no_sluid_is_none(text: object) -> None:
    number = sluid_number(text)
    assert number is None or sluid_of(number) == text
