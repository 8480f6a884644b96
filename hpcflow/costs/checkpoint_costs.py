"""Compute the cost of stored and fetched checkpoints, from the records of runs and their sites.

The sums are exact: bytes × microseconds are whole numbers. A GB is 10⁹ bytes, a month 730 hours:
see :mod:`hpcflow.sites.prices`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Final

from hpcflow.costs.facts import SCRATCH, Facts, Fetched, Stored, add_known, add_run
from hpcflow.errors import HpcflowError
from hpcflow.ledger.rows import MirroredRow, StoringRow
from hpcflow.ledger.store import Ledger
from hpcflow.sites.prices import ScratchPrice, StorePrice, price_of_store
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home
from hpcflow.storage.runs import is_linked

GB_BYTES: Final = 10**9
MONTH_HOURS: Final = 730
_US: Final = timedelta(microseconds=1)
_GB_MONTH: Final = GB_BYTES * MONTH_HOURS * 3600 * 10**6
_PLACES: Final = Decimal("1e-8")
_EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)

#: Returns the price of the run's site for a place; None without a price.
PriceOf = Callable[[StoringRow, str], ScratchPrice | StorePrice | None]


@dataclass(frozen=True)
class CheckpointCosts:
    """The cost of checkpoints, and what is unknown about it.

    Attributes:
        facts: also counts the unknown.
        problems: site -> why its file could not be read, so its prices are unknown.
    """

    report: StorageReport
    facts: Facts = field(default_factory=Facts)
    problems: dict[str, str] = field(default_factory=dict)


def checkpoint_costs(
    ledger: Ledger,
    keys: Sequence[str],
    *,
    since: datetime,
    until: datetime,
    filters: Mapping[str, str],
    everyone: bool,
    find_site: Callable[[str], Site],
    home: Home,
) -> CheckpointCosts:
    """Return what checkpoints cost between two times; nothing if no site prices them.

    Args:
        until: not after now.
        everyone: also count the runs of other users.
        home: only run directories with a link in it are read. Of other runs, only the ledger's data
            about their stores is used.
    """
    sites: dict[str, Site] = {}
    problems: dict[str, str] = {}
    for name in ledger.sites(filters=filters, everyone=everyone):
        try:
            site = find_site(name)
        except HpcflowError as error:
            problems[name] = error.message
            continue
        if site.scratch.price is not None or (site.mirror is not None and site.mirror.price):
            sites[name] = site
    facts = Facts()
    runs = ledger.storing(list(sites), filters=filters, everyone=everyone)
    # The files of finished runs whose checkpoints are all removed need not be read.
    left_store, left_scratch = ledger.left(list(sites), since, everyone=everyone)
    in_stores = {
        run.run_id
        for run in runs
        if run.run_id not in left_store and _price(sites, run, run.mirror_url) is not None
    }
    on_scratch = {
        run.run_id
        for run in runs
        if run.run_id not in left_scratch and _price(sites, run, SCRATCH) is not None
    }
    known: dict[str, list[MirroredRow]] = {}
    for row in ledger.mirrored(sorted(in_stores), everyone=everyone):
        known.setdefault(row.run_id, []).append(row)
    for run in runs:
        is_stored, is_on_scratch = run.run_id in in_stores, run.run_id in on_scratch
        if not (is_stored or is_on_scratch):
            continue
        sent = known.get(run.run_id, ())
        if is_linked(home, run.run_id, run.run_dir):
            add_run(facts, home, run, sent, in_stores=is_stored, on_scratch=is_on_scratch)
        else:
            add_known(facts, run, sent)
    found = storage_report(
        facts.stored,
        facts.fetched,
        keys,
        since=since,
        until=until,
        price_of=lambda run, place: _price(sites, run, place),
    )
    return CheckpointCosts(found, facts, problems)


def _price(
    sites: Mapping[str, Site], run: StoringRow, place: str | None
) -> ScratchPrice | StorePrice | None:
    site = sites[run.site]
    if place == SCRATCH:
        return site.scratch.price
    return None if place is None else price_of_store(site, place)


@dataclass
class StorageLine:
    """One line about checkpoints.

    Attributes:
        by: as in :class:`hpcflow.costs.report.Line`; empty for a key that checkpoints lack.
        place: a store's URL up to its bucket, or ``scratch``.
        gb_months: stored; ``unpriced_gb_months`` of them at a time without a price.
        gb: fetched; ``unpriced_gb`` of them likewise.
    """

    by: tuple[str, ...]
    place: str
    gb_months: Fraction = Fraction(0)
    unpriced_gb_months: Fraction = Fraction(0)
    storage_usd: Fraction = Fraction(0)
    gb: Fraction = Fraction(0)
    unpriced_gb: Fraction = Fraction(0)
    egress_usd: Fraction = Fraction(0)

    @property
    def cost_usd(self) -> Fraction:
        """Return the cost of storing and fetching, as far as priced."""
        return self.storage_usd + self.egress_usd


@dataclass(frozen=True)
class StorageReport:
    """Lines, the most expensive first, and their sum."""

    keys: tuple[str, ...]
    lines: list[StorageLine] = field(default_factory=list)
    total: StorageLine = field(default_factory=lambda: StorageLine((), ""))


def storage_report(
    stored: Iterable[Stored],
    fetched: Iterable[Fetched],
    keys: Sequence[str],
    *,
    since: datetime,
    until: datetime,
    price_of: PriceOf,
) -> StorageReport:
    """Sum up what was stored between two times, and what was fetched.

    Usage for which the site has no price is not charged, and left out.

    Args:
        until: not after now, so that no storage is charged in advance.
    """
    lines: dict[tuple[tuple[str, ...], str], StorageLine] = {}
    total = StorageLine(("",) * len(keys), "")

    def line(run: StoringRow, place: str, at: datetime) -> StorageLine:
        by = tuple(_value(run, key, at) for key in keys)
        short = bucket_of(place)
        return lines.setdefault((by, short), StorageLine(by, short))

    for each in stored:
        begin, end = max(each.begin, since), min(each.end or until, until)
        for one, other in _months(begin, end) if "month" in keys else [(begin, end)]:
            if one < other:
                price = price_of(each.run, each.place)
                if price is not None:
                    for which in (line(each.run, each.place, one), total):
                        _add_stored(which, each.size_bytes, price, one, other)
    for get in fetched:
        price = price_of(get.run, get.place) if since <= get.at < until else None
        if isinstance(price, StorePrice):
            for which in (line(get.run, get.place, get.at), total):
                _add_fetched(which, get.size_bytes, price, get.at)
    found = [each for each in lines.values() if each.gb_months or each.gb]
    return StorageReport(tuple(keys), sorted(found, key=_dearest_first), total)


def _dearest_first(line: StorageLine) -> tuple[Fraction, Fraction, tuple[str, ...], str]:
    return (-line.cost_usd, -line.gb_months, line.by, line.place)


def _add_stored(
    line: StorageLine,
    size_bytes: int,
    price: ScratchPrice | StorePrice,
    begin: datetime,
    end: datetime,
) -> None:
    if all(rates.storage_usd_per_gb_month is None for rates in (price, *price.earlier)):
        return
    for since, until, rates in price.periods(begin, end):
        months = gb_months(size_bytes, since, until)
        line.gb_months += months
        if rates.storage_usd_per_gb_month is None:
            line.unpriced_gb_months += months
        else:
            line.storage_usd += months * Fraction(rates.storage_usd_per_gb_month)


def _add_fetched(line: StorageLine, size_bytes: int, price: StorePrice, at: datetime) -> None:
    if all(rates.egress_usd_per_gb is None for rates in (price, *price.earlier)):
        return
    ((_, _, rates),) = price.periods(at, at)
    gb = Fraction(size_bytes, GB_BYTES)
    line.gb += gb
    if rates.egress_usd_per_gb is None:
        line.unpriced_gb += gb
    else:
        line.egress_usd += gb * Fraction(rates.egress_usd_per_gb)


def gb_months(size_bytes: int, begin: datetime, end: datetime) -> Fraction:
    """Return bytes × time in GB-months: 10⁹ bytes × 730 hours; 0 if the end is before the begin."""
    return Fraction(size_bytes * max(0, (end - begin) // _US), _GB_MONTH)


def decimal(amount: Fraction) -> Decimal:
    """Return an amount with eight places, rounded half to even, as in a bill."""
    exact = _EXACT.divide(Decimal(amount.numerator), Decimal(amount.denominator))
    return exact.quantize(_PLACES, context=_EXACT)


def bucket_of(place: str) -> str:
    """Return the store's URL up to its bucket, such as ``s3://bucket``; a folder unchanged."""
    scheme, mark, rest = place.partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0]}" if mark and scheme != "file" else place


def _months(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the parts of a time, one for each month of UTC."""
    while begin < end:
        after = (begin.replace(day=1) + timedelta(days=32)).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        yield begin, min(after, end)
        begin = after


_OF_RUN: Final[dict[str, Callable[[StoringRow], str]]] = {
    "project": lambda run: run.project,
    "user": lambda run: run.user,
    "run": lambda run: run.run_id,
    "sweep": lambda run: run.sweep or "",
}


def _value(run: StoringRow, key: str, at: datetime) -> str:
    """Return the value of a key; empty for partition, account, GPU type and cause."""
    if key == "month":
        return f"{at:%Y-%m}"
    return _OF_RUN[key](run) if key in _OF_RUN else ""
