"""The price of storing and fetching checkpoints: ``price`` of a site's mirror and scratch.

A GB is 10⁹ bytes and each month is 730 hours, as in cloud prices. So a GB-month is 10⁹ bytes ×
730 h.
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
    """The price of storing checkpoints in a period. Decimal; quote it in the file."""

    storage_usd_per_gb_month: Rate | None = Field(
        None, description="USD for storing 10⁹ bytes for 730 hours."
    )
    valid_from: Moment | None = Field(
        None,
        description="First day of the price, in UTC, or a time with its offset; always if absent.",
    )

    @field_serializer("valid_from")
    def _time(self, value: Any) -> str | None:
        return None if value is None else to_text(value)


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
