"""What keeping checkpoints and fetching them comes to: exactly, whatever it is cut into."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcflow.costs.checkpoint_costs import (
    StorageReport,
    bucket_of,
    decimal,
    gb_months,
    storage_report,
)
from hpcflow.costs.facts import SCRATCH, Fetched, Stored
from hpcflow.ledger.rows import StoringRow
from hpcflow.sites.prices import ScratchPrice, StorePrice, price_of_store
from tests.sites.build import minimal, site

URL = "s3://lab/ada"
BEGIN = datetime(2026, 7, 1, tzinfo=timezone.utc)
LATER = datetime(2030, 1, 1, tzinfo=timezone.utc)
MONTH = timedelta(hours=730)
GB = 10**9
RUN = StoringRow("a-1", "vision", "ada", "devcluster", None, "/scratch/a-1", URL)
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(timezone.utc))


def price(**said: Any) -> StorePrice:
    return StorePrice.model_validate(said, by_alias=True, by_name=False)


CENTS = price(storage_usd_per_gb_month="0.02", egress_usd_per_gb="0.09")


def summed(
    stored: list[Stored],
    fetched: list[Fetched] | None = None,
    *,
    of: StorePrice | ScratchPrice | None = CENTS,
    keys: tuple[str, ...] = ("project",),
    since: datetime = BEGIN,
    until: datetime = LATER,
) -> StorageReport:
    return storage_report(
        stored, fetched or [], keys, since=since, until=until, price_of=lambda _run, _place: of
    )


def stored(
    size_bytes: int = GB, begin: datetime = BEGIN, end: datetime | None = BEGIN + MONTH
) -> Stored:
    return Stored(RUN, URL, size_bytes, begin, end)


def test_a_gb_month_is_1e9_bytes_for_730_hours() -> None:
    assert gb_months(GB, BEGIN, BEGIN + MONTH) == 1
    assert gb_months(2 * GB, BEGIN, BEGIN + MONTH / 2) == 1
    assert gb_months(GB, BEGIN + MONTH, BEGIN) == 0, "clocks differ"
    (line,) = summed([stored(100 * GB)]).lines
    assert (line.by, line.place) == (("vision",), "s3://lab")
    assert line.gb_months == 100
    assert line.storage_usd == 2


def test_what_is_still_there_is_counted_to_the_end_of_the_time() -> None:
    found = summed([stored(end=None)], until=BEGIN + 2 * MONTH)
    assert found.total.gb_months == 2
    assert summed([stored(end=None)], since=LATER, until=LATER).lines == []


def test_what_was_fetched_is_counted_when_it_was() -> None:
    gets = [Fetched(RUN, URL, 5 * GB, BEGIN), Fetched(RUN, URL, 7 * GB, BEGIN - MONTH)]
    (line,) = summed([], gets).lines
    assert line.gb == 5
    assert line.egress_usd == Fraction("0.45")
    assert line.gb_months == 0


def test_each_time_has_its_own_price_and_one_without_is_said() -> None:
    changed = price(
        storage_usd_per_gb_month="4",
        egress_usd_per_gb="1",
        valid_from=(BEGIN + MONTH).isoformat(),
        earlier=[{"storage_usd_per_gb_month": "2", "valid_from": BEGIN.isoformat()}],
    )
    before = BEGIN - MONTH
    gets = [Fetched(RUN, URL, GB, at) for at in (before, BEGIN, BEGIN + MONTH)]
    (line,) = summed(
        [stored(begin=before, end=BEGIN + 2 * MONTH)], gets, of=changed, since=before
    ).lines
    kept, spent = line.gb_months, line.storage_usd
    assert [int(each) for each in (kept, line.unpriced_gb_months, spent)] == [3, 1, 6]
    assert [int(each) for each in (line.gb, line.unpriced_gb, line.egress_usd)] == [3, 2, 1]


def test_what_a_site_has_no_price_for_is_not_there() -> None:
    gets = [Fetched(RUN, URL, GB, BEGIN)]
    assert summed([stored()], gets, of=None).lines == []
    (line,) = summed([stored()], gets, of=price(egress_usd_per_gb="1")).lines
    assert line.gb_months == 0
    assert line.gb == 1
    on_scratch = ScratchPrice(storage_usd_per_gb_month=Decimal(1))
    (line,) = summed([Stored(RUN, SCRATCH, GB, BEGIN, BEGIN + MONTH)], of=on_scratch).lines
    assert line.place == "scratch"
    assert line.storage_usd == 1


def test_months_are_those_of_utc_and_a_checkpoint_has_no_partition() -> None:
    long = stored(begin=BEGIN - timedelta(days=1), end=BEGIN + timedelta(days=40))
    found = summed([long], keys=("month", "partition"), since=BEGIN - 2 * MONTH)
    assert sorted(line.by for line in found.lines) == [
        ("2026-06", ""),
        ("2026-07", ""),
        ("2026-08", ""),
    ]
    hours = {line.by[0]: line.gb_months * 730 for line in found.lines}
    assert hours == {"2026-06": 24, "2026-07": 31 * 24, "2026-08": 9 * 24}


@given(st.lists(MOMENTS, min_size=2, max_size=8), st.integers(0, 10**15), st.data())
def test_the_parts_of_a_time_add_up_to_the_whole(
    moments: list[datetime], size_bytes: int, data: st.DataObject
) -> None:
    begin, *cuts, end = sorted(moments)
    kept = stored(size_bytes, begin, end)
    changes = sorted({data.draw(MOMENTS), data.draw(MOMENTS)}, reverse=True)
    of = price(
        storage_usd_per_gb_month="0.0231",
        valid_from=changes[0].isoformat(),
        earlier=[
            {"storage_usd_per_gb_month": "0.017", "valid_from": each.isoformat()}
            for each in changes[1:]
        ],
    )
    since = datetime(2025, 1, 1, tzinfo=timezone.utc)
    whole = summed([kept], of=of, since=since).total
    edges = [begin, *cuts, end]
    for parts in (
        [
            summed([kept], of=of, since=one, until=other).total
            for one, other in itertools.pairwise(edges)
        ],
        [
            summed([stored(size_bytes, one, other)], of=of, since=since).total
            for one, other in itertools.pairwise(edges)
        ],
        summed([kept], of=of, since=since, keys=("month",)).lines,
    ):
        assert sum((part.storage_usd for part in parts), Fraction(0)) == whole.storage_usd
        assert sum((part.gb_months for part in parts), Fraction(0)) == whole.gb_months


def test_money_is_rounded_half_to_even_to_eight_places() -> None:
    assert decimal(Fraction(2, 3)) == Decimal("0.66666667")
    assert decimal(Fraction(5, 10**9)) == Decimal(0)
    assert decimal(Fraction(15, 10**9)) == Decimal("2e-8")


@pytest.mark.parametrize(
    ("place", "bucket"),
    [("s3://lab/ada/x", "s3://lab"), ("/mirror/ada", "/mirror/ada"), ("scratch", "scratch")],
)
def test_a_line_is_about_a_bucket(place: str, bucket: str) -> None:
    assert bucket_of(place) == bucket


MIRROR = """
mirror:
  url: s3://lab/$USER/${ACCOUNT}
  price: {storage_usd_per_gb_month: "0.023", egress_usd_per_gb: "0.09"}
"""


@pytest.mark.parametrize(
    ("url", "is_priced"),
    [
        ("s3://lab/ada/physics", True),
        ("s3://lab/ada/physics/run-1", True),
        ("s3://lab/ada", False),
        ("s3://labor/ada/physics", False),
        ("s3://my-own/ada/physics", False),
    ],
)
def test_the_price_is_that_of_the_sites_own_store(url: str, is_priced: bool) -> None:
    assert (price_of_store(site(minimal("x", MIRROR)), url) is not None) is is_priced
    assert price_of_store(site(minimal("x")), url) is None


def test_what_was_earlier_must_have_ended() -> None:
    with pytest.raises(ValidationError, match="it is the end of the `earlier` price"):
        price(egress_usd_per_gb="1", earlier=[{"egress_usd_per_gb": "2"}])
    with pytest.raises(ValidationError, match="must be before"):
        ScratchPrice.model_validate(
            {"valid_from": "2026-01-01", "earlier": [{"valid_from": "2026-01-01"}]}
        )
