"""Compute the lines of a bill: what was allocated, for how long, at which price. Pure, and exact.

Each line is ``count × seconds / 3600 × rate``, in decimal numbers, rounded half to even to eight
places: a millionth of a cent. Amounts are rounded to cents only for display.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Final

from hpcflow.model.usage import Usage
from hpcflow.sites.prices import Price, Rates

_PLACES: Final = Decimal("1e-8")
_EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True)
class Charge:
    """One line of a bill.

    Attributes:
        kind: ``gpu``, ``gpu:TYPE``, ``node``, ``cpu`` or ``mem``.
        hours: of one unit; for memory, one GiB.
        cost_usd, cost_su: None if it has no price, or an unknown one.
    """

    kind: str
    begin: datetime
    end: datetime
    hours: Decimal
    cost_usd: Decimal | None
    cost_su: Decimal | None


@dataclass(frozen=True)
class Bill:
    """The bill of one job.

    Attributes:
        cost_usd, cost_su: None, not 0, if the site has no price.
    """

    charges: Sequence[Charge]
    cost_usd: Decimal | None
    cost_su: Decimal | None

    @property
    def gpu_hours(self) -> Decimal:
        """Return GPUs × hours, of all types."""
        return _sum(line.hours for line in self.charges if line.kind.partition(":")[0] == "gpu")


def bill_of(
    usage: Usage,
    price: Price | None,
    *,
    begin: datetime,
    end: datetime,
    elapsed_s: Decimal,
    gpu_types: Mapping[str, str] | None = None,
) -> Bill:
    """Return the bill of one job.

    Args:
        begin, end: when it ran; they select the price.
        elapsed_s: the charged time. It is shorter than from begin to end if the job was suspended:
            then each period gets its share.
        gpu_types: name of a GPU type in the scheduler -> key of the site's ``gpu_types``.
    """
    with localcontext(_EXACT):
        charges: list[Charge] = []
        has_usd = has_su = True
        for since, until, seconds, rates in _periods(price, begin, end, elapsed_s):
            charges += _lines(usage, rates, since, until, seconds, gpu_types or {})
            has_usd = has_usd and _covers(usage, rates, gpu_types or {}, in_money=True)
            has_su = has_su and _covers(usage, rates, gpu_types or {}, in_money=False)
        return Bill(
            charges,
            _sum(line.cost_usd or Decimal(0) for line in charges) if has_usd else None,
            _sum(line.cost_su or Decimal(0) for line in charges) if has_su else None,
        )


def _sum(amounts: Iterator[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0))


def _periods(
    price: Price | None, begin: datetime, end: datetime, elapsed_s: Decimal
) -> Iterator[tuple[datetime, datetime, Decimal, Rates]]:
    """Yield each period with its share of the seconds; the last gets the rest: the sum is exact."""
    found = price.periods(begin, end) if price is not None else [(begin, end, Rates())]
    wall_s = _seconds(begin, end)
    left = elapsed_s
    for since, until, rates in found[:-1]:
        share = (elapsed_s * _seconds(since, until) / wall_s).quantize(_PLACES)
        left -= share
        yield since, until, share, rates
    since, until, rates = found[-1]
    yield since, until, left, rates


def _seconds(begin: datetime, end: datetime) -> Decimal:
    took = end - begin
    return Decimal(took.days * 86_400 + took.seconds) + Decimal(took.microseconds) / 1_000_000


def _lines(
    usage: Usage,
    rates: Rates,
    since: datetime,
    until: datetime,
    seconds: Decimal,
    gpu_types: Mapping[str, str],
) -> Iterator[Charge]:
    for kind, gpu_type, count in _counted(usage, gpu_types):
        hours = count * seconds / 3600
        usd = rates.rate(kind, gpu_type, in_money=True)
        su = rates.rate(kind, gpu_type, in_money=False)
        yield Charge(
            f"{kind}:{gpu_type}" if gpu_type else kind,
            since,
            until,
            hours.quantize(_PLACES),
            None if usd is None else (usd * hours).quantize(_PLACES),
            None if su is None else (su * hours).quantize(_PLACES),
        )


def _counted(usage: Usage, gpu_types: Mapping[str, str]) -> Iterator[tuple[str, str, Decimal]]:
    for name, count in sorted(usage.gpus.items()):
        if count:
            yield "gpu", gpu_types.get(name, name), Decimal(count)
    yield "node", "", Decimal(usage.nodes)
    yield "cpu", "", Decimal(usage.cpus)
    yield "mem", "", Decimal(usage.mem_mb) / 1024


def _covers(usage: Usage, rates: Rates, gpu_types: Mapping[str, str], *, in_money: bool) -> bool:
    """Return whether there is a price and, if it differs by GPU type, one for each used type."""
    if not rates.is_said(in_money=in_money):
        return False
    by_type = rates.gpu_type_hour_usd if in_money else rates.gpu_type_hour_su
    return not by_type or all(
        rates.rate("gpu", gpu_types.get(name, name), in_money=in_money) is not None
        for name, count in usage.gpus.items()
        if count
    )
