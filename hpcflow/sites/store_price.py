"""The price of storing and fetching checkpoints: ``price`` of a site's mirror and scratch.

A GB is 10⁹ bytes, a month is 730 hours: as clouds count it, and every month alike. So a GB-month is
10⁹ bytes × 730 h, whichever way bytes and hours make it up.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, field_serializer, model_validator

from hpcflow.clock import to_text
from hpcflow.model.kinds import Section
from hpcflow.sites.prices import Moment, Rate, periods_of, require_order

if TYPE_CHECKING:
    from hpcflow.sites.schema import Site

_VARIABLE: Final = re.compile(r"\$(?:\w+|\{\w+\})")


class StorageRates(Section):
    """What keeping checkpoints costs for a time. Decimal; quote it in the file."""

    storage_usd_per_gb_month: Rate | None = Field(
        None, description="USD for keeping 10⁹ bytes for 730 hours."
    )
    valid_from: Moment | None = Field(
        None,
        description="The day from which it holds, in UTC, or a time with its offset; always if "
        "absent.",
    )

    @field_serializer("valid_from")
    def _time(self, value: Any) -> str | None:
        return None if value is None else to_text(value)


class StoreRates(StorageRates):
    """What keeping and fetching checkpoints costs for a time. Decimal; quote it in the file."""

    egress_usd_per_gb: Rate | None = Field(
        None, description="USD for 10⁹ bytes that are fetched from the store."
    )


class ScratchPrice(StorageRates):
    """What keeping checkpoints costs. Decimal; quote it in the file."""

    earlier: list[StorageRates] = Field(
        default_factory=list, description="What held before `valid_from`, the newest first."
    )

    @model_validator(mode="after")
    def _in_order(self) -> ScratchPrice:
        require_order(self.valid_from, [rates.valid_from for rates in self.earlier])
        return self

    def periods(
        self, begin: datetime, end: datetime
    ) -> list[tuple[datetime, datetime, StorageRates]]:
        """As those of :class:`hpcflow.sites.prices.Price`."""
        return periods_of((self, *self.earlier), begin, end, StorageRates())


class StorePrice(StoreRates):
    """What keeping and fetching checkpoints costs. Decimal; quote it in the file."""

    earlier: list[StoreRates] = Field(
        default_factory=list, description="What held before `valid_from`, the newest first."
    )

    @model_validator(mode="after")
    def _in_order(self) -> StorePrice:
        require_order(self.valid_from, [rates.valid_from for rates in self.earlier])
        return self

    def periods(
        self, begin: datetime, end: datetime
    ) -> list[tuple[datetime, datetime, StoreRates]]:
        """As those of :class:`hpcflow.sites.prices.Price`."""
        return periods_of((self, *self.earlier), begin, end, StoreRates())


def price_of_store(site: Site, url: str) -> StorePrice | None:
    """What ``site`` says of the store at ``url``; None where it says nothing, or the run has a
    store of its own."""
    mirror = site.mirror
    if mirror is None or mirror.price is None:
        return None
    # For any user and any environment: variables stand for anything.
    texts = [re.escape(text) for text in _VARIABLE.split(mirror.url.rstrip("/"))]
    pattern = "[^/]*".join(texts) + "(?:/.*)?"
    return mirror.price if re.fullmatch(pattern, url.rstrip("/"), re.DOTALL) else None
