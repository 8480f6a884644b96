"""Prices now and earlier: the sections ``price`` of a partition, a mirror and scratch.

A GB is 10⁹ bytes and each month is 730 hours, as in cloud prices. So a GB-month is 10⁹ bytes ×
730 h.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from hpcflow.clock import to_text
from hpcflow.model.kinds import Kind, Section, Word, WrongKey

if TYPE_CHECKING:
    from hpcflow.sites.schema import Site

#: Kind -> the keys of its rates: in money, in service units.
RATES: Final = {
    "gpu": ("gpu_hour_usd", "gpu_hour_su"),
    "node": ("node_hour_usd", "node_hour_su"),
    "cpu": ("cpu_hour_usd", "cpu_hour_su"),
    "mem": ("mem_gb_hour_usd", "mem_gb_hour_su"),
}
_VARIABLE: Final = re.compile(r"\$(?:\w+|\{\w+\})")


def _moment(value: object) -> object:
    """Parse a time with its offset, or ``2026-07-01``, the begin of that day in UTC."""
    if isinstance(value, datetime):
        return value
    format_hint = (
        "expected a day like 2026-07-01, or a time with its offset: 2026-07-01T00:00:00+02:00"
    )
    if not isinstance(value, str):
        raise ValueError(format_hint)
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(format_hint) from None
    if moment.tzinfo is None:
        if "T" in value or " " in value:
            raise ValueError(format_hint)
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc)


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    PlainSerializer(to_text),
    WithJsonSchema({"type": "string"}),
    Kind("day, or time"),
]
Rate = Annotated[Decimal, Field(ge=0, le=10**9)]


class Rates(Section):
    """The price of an hour in a period, by this site's units. Decimal; quote it in the file."""

    gpu_hour_usd: Rate | None = Field(None, description="USD per GPU and hour.", examples=["3.00"])
    gpu_type_hour_usd: dict[Word, Rate] = Field(
        default_factory=dict,
        description="USD per GPU and hour by GPU type, a key of `gpu_types`, for a partition with "
        "several types; overrides `gpu_hour_usd`.",
    )
    node_hour_usd: Rate | None = Field(None, description="USD per node and hour.")
    cpu_hour_usd: Rate | None = Field(None, description="USD per CPU core and hour.")
    mem_gb_hour_usd: Rate | None = Field(None, description="USD per GiB of memory and hour.")
    gpu_hour_su: Rate | None = Field(None, description="Service units per GPU and hour.")
    gpu_type_hour_su: dict[Word, Rate] = Field(
        default_factory=dict, description="Service units per GPU and hour by GPU type."
    )
    node_hour_su: Rate | None = Field(None, description="Service units per node and hour.")
    cpu_hour_su: Rate | None = Field(None, description="Service units per CPU core and hour.")
    mem_gb_hour_su: Rate | None = Field(
        None, description="Service units per GiB of memory and hour."
    )
    valid_from: Moment | None = Field(
        None,
        description="First day of the price, in UTC, or a time with its offset. Default: any time.",
    )

    def rate(self, kind: str, gpu_type: str, *, in_money: bool) -> Decimal | None:
        """Return the price of one hour of one unit of ``kind``; None without one.

        Args:
            kind: a key of RATES.
            gpu_type: for GPUs, a key of the site's ``gpu_types``.
        """
        name = RATES[kind][0 if in_money else 1]
        if kind == "gpu":
            by_type = self.gpu_type_hour_usd if in_money else self.gpu_type_hour_su
            if gpu_type in by_type:
                return by_type[gpu_type]
        found: Decimal | None = getattr(self, name)
        return found

    def priced_types(self) -> list[tuple[str, str]]:
        """Return (key, GPU type) of each price of a single GPU type."""
        keys = ("gpu_type_hour_usd", "gpu_type_hour_su")
        return [(key, gpu_type) for key in keys for gpu_type in getattr(self, key)]

    def is_said(self, *, in_money: bool) -> bool:
        """Return whether there is any price, in money or in service units."""
        by_type = self.gpu_type_hour_usd if in_money else self.gpu_type_hour_su
        names = [pair[0 if in_money else 1] for pair in RATES.values()]
        return bool(by_type) or any(getattr(self, name) is not None for name in names)


class Price(Rates):
    """The price of an hour, by this site's units. Decimal; quote it in the file."""

    earlier: list[Rates] = Field(
        default_factory=list,
        description="Prices before `valid_from`, newest first, for older runs.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Price:
        require_order(self.valid_from, [rates.valid_from for rates in self.earlier])
        return self

    def periods(self, begin: datetime, end: datetime) -> list[tuple[datetime, datetime, Rates]]:
        """Return the periods from ``begin`` to ``end`` with their prices, oldest first.

        A period without a price has empty rates.
        """
        return periods_of((self, *self.earlier), begin, end, Rates())


class Dated(Protocol):
    """A price with the time of its begin."""

    @property
    def valid_from(self) -> datetime | None:
        """Return the begin; None for always."""
        ...


Held = TypeVar("Held", bound=Dated)


def require_order(newest: datetime | None, earlier: Sequence[datetime | None]) -> None:
    """Raise WrongKey unless ``earlier`` prices are in order, newest first, with known ends."""
    after = newest
    for index, valid_from in enumerate(earlier):
        if after is None:
            key = ("valid_from",) if index == 0 else ("earlier", index - 1, "valid_from")
            raise WrongKey("is missing: it is the end of the `earlier` price", *key)
        if valid_from is not None and valid_from >= after:
            raise WrongKey(
                "must be before that of the next newer price", "earlier", index, "valid_from"
            )
        after = valid_from


def periods_of(
    newest_first: Sequence[Held], begin: datetime, end: datetime, nothing: Held
) -> list[tuple[datetime, datetime, Held]]:
    """Return the periods from ``begin`` to ``end`` with their prices, oldest first; ``nothing`` is
    the price before the oldest one.
    """
    found: list[tuple[datetime, datetime, Held]] = []
    until = end
    for rates in newest_first:
        since = rates.valid_from
        if since is None or since <= begin:
            return [(begin, until, rates), *found]
        if since < until:
            found.insert(0, (since, until, rates))
            until = since
    return [(begin, until, nothing), *found]


class StorageRates(Section):
    """The price of storing checkpoints in a period. Decimal; quote it in the file."""

    storage_usd_per_gb_month: Rate | None = Field(
        None, description="USD for storing 10⁹ bytes for 730 hours."
    )
    valid_from: Moment | None = Field(
        None,
        description="First day of the price, in UTC, or a time with its offset. Default: any time.",
    )


class StoreRates(StorageRates):
    """The price of storing and fetching checkpoints in a period. Decimal; quote it in the file."""

    egress_usd_per_gb: Rate | None = Field(
        None, description="USD for fetching 10⁹ bytes from the store."
    )


class ScratchPrice(StorageRates):
    """The price of storing checkpoints. Decimal; quote it in the file."""

    earlier: list[StorageRates] = Field(
        default_factory=list, description="Prices before `valid_from`, newest first."
    )

    @model_validator(mode="after")
    def _in_order(self) -> ScratchPrice:
        require_order(self.valid_from, [rates.valid_from for rates in self.earlier])
        return self

    def periods(
        self, begin: datetime, end: datetime
    ) -> list[tuple[datetime, datetime, StorageRates]]:
        """See :meth:`hpcflow.sites.prices.Price.periods`."""
        return periods_of((self, *self.earlier), begin, end, StorageRates())


class StorePrice(StoreRates):
    """The price of storing and fetching checkpoints. Decimal; quote it in the file."""

    earlier: list[StoreRates] = Field(
        default_factory=list, description="Prices before `valid_from`, newest first."
    )

    @model_validator(mode="after")
    def _in_order(self) -> StorePrice:
        require_order(self.valid_from, [rates.valid_from for rates in self.earlier])
        return self

    def periods(
        self, begin: datetime, end: datetime
    ) -> list[tuple[datetime, datetime, StoreRates]]:
        """See :meth:`hpcflow.sites.prices.Price.periods`."""
        return periods_of((self, *self.earlier), begin, end, StoreRates())


def price_of_store(site: Site, url: str) -> StorePrice | None:
    """Return the site's price of the store at ``url``; None without one, or for another store."""
    mirror = site.mirror
    if mirror is None or mirror.price is None:
        return None
    # The run may be of any user and environment, so a variable matches any text.
    texts = [re.escape(text) for text in _VARIABLE.split(mirror.url.rstrip("/"))]
    pattern = "[^/]*".join(texts) + "(?:/.*)?"
    return mirror.price if re.fullmatch(pattern, url.rstrip("/"), re.DOTALL) else None
