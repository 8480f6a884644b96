"""Parse the terms of a budget from the command line."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Final

import click

from hpcflow.budgets.amounts import amount_from
from hpcflow.budgets.records import Limit, OnExceeded, Terms
from hpcflow.errors import InputError

_NONE: Final = "none"


def changed_terms(
    before: Terms | None,
    unit: str,
    hard: str | None,
    soft: str | None,
    per: str | None,
    on_exceeded: str | None,
) -> Terms:
    """Return the terms ``before`` with the given values.

    Raises:
        InputError: no limit is left, or the soft one is more than the hard one.
    """
    terms = before or Terms()
    limit = terms.limits.get(unit)
    found = _limit(limit.hard if limit else None, hard, "--hard")
    warned = _limit(limit.soft if limit else None, soft, "--soft")
    if found is not None and warned is not None and warned > found:
        raise InputError(
            f"the soft limit, {warned}, is more than the hard one, {found}",
            next_action="give --soft a lower amount than --hard",
        )
    limits = {**terms.limits}
    limits.pop(unit, None)
    if found is not None or warned is not None:
        limits[unit] = Limit(found, warned)
    if not limits:
        raise InputError(
            "a budget needs a limit, and this one would have none",
            next_action="give one: --hard 500 or --soft 400; or remove it: hpcflow budget remove",
        )
    terms = replace(terms, limits=limits)
    if per is not None:
        terms = replace(terms, per_month=per == "month")
    if on_exceeded is not None:
        terms = replace(terms, on_exceeded=OnExceeded(on_exceeded))
    return terms


def _limit(before: Decimal | None, value: str | None, option: str) -> Decimal | None:
    if value is None:
        return before
    if value == _NONE:
        return None
    try:
        return amount_from(value)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}, or `none`; got {value[:100]!r}") from None
