"""What can be the amount of a budget."""

from __future__ import annotations

from decimal import Decimal

import pytest

from hpcflow.budgets.amounts import NOTHING, Amounts, amount_from, amounts_from, billed, total


@pytest.mark.parametrize("text", ["0", "500", "12.50", "1e3", "0.00000001", "7.250000000000"])
def test_what_is_typed_can_be_written_and_read_again(text: str) -> None:
    value = amount_from(text)
    assert amount_from(f"{value:f}") == value == Decimal(text)


@pytest.mark.parametrize("text", ["0e-50", "1e-9999999999", "1e-9", "-1", "1e16", "nan", ""])
def test_what_cannot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected an amount"):
        amount_from(text)


def test_a_bill_that_is_more_exact_is_rounded_where_it_is_written() -> None:
    exact = Amounts(Decimal(1) / 3, None, Decimal("1e-30"))
    assert amounts_from(exact.to_json()) == Amounts(Decimal("0.33333333"), None, Decimal(0))


def test_what_never_ran_takes_nothing_whatever_its_price() -> None:
    assert billed(None, None, None, elapsed_s=0) == NOTHING
    assert billed(None, "2", 0.5, elapsed_s=60) == Amounts(None, Decimal(2), Decimal("0.5"))


def test_no_sum_is_too_large_to_be_read_again() -> None:
    """A teammate can write two lines with the largest amount."""
    most = Amounts(Decimal(10) ** 15, Decimal(1))
    assert amounts_from(total([most, most]).to_json()) == Amounts(
        Decimal(10) ** 15, Decimal(2), Decimal(0)
    )
