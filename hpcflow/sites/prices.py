"""The price of an hour on a partition, now and earlier: the section ``price`` of a site file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Annotated, Any, Final, Protocol, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema, field_serializer, model_validator

from hpcflow.clock import to_text
from hpcflow.model.kinds import Kind, Section, Word, WrongKey

#: What is counted -> the rates for it: in money, in service units.
RATES: Final = {
    "gpu": ("gpu_hour_usd", "gpu_hour_su"),
    "node": ("node_hour_usd", "node_hour_su"),
    "cpu": ("cpu_hour_usd", "cpu_hour_su"),
    "mem": ("mem_gb_hour_usd", "mem_gb_hour_su"),
}


def _moment(value: object) -> object:
    """``2026-07-01``, the begin of that day in UTC, or a time with its offset."""
    if isinstance(value, datetime):
        return value
    said = "expected a day like 2026-07-01, or a time with its offset: 2026-07-01T00:00:00+02:00"
    if not isinstance(value, str):
        raise ValueError(said)
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(said) from None
    if moment.tzinfo is None:
        if "T" in value or " " in value:
            raise ValueError(said)
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc)


Moment = Annotated[
    datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string"}), Kind("day, or time")
]
Rate = Annotated[Decimal, Field(ge=0, le=10**9)]


class Rates(Section):
    """What one hour costs for a time, by what this site counts. Decimal; quote it in the file."""

    gpu_hour_usd: Rate | None = Field(None, description="USD per GPU and hour.", examples=["3.00"])
    gpu_type_hour_usd: dict[Word, Rate] = Field(
        default_factory=dict,
        description="USD per GPU and hour by its type, a key of `gpu_types`, where a partition has "
        "several; goes before `gpu_hour_usd`.",
    )
    node_hour_usd: Rate | None = Field(None, description="USD per node and hour.")
    cpu_hour_usd: Rate | None = Field(None, description="USD per CPU core and hour.")
    mem_gb_hour_usd: Rate | None = Field(None, description="USD per GiB of memory and hour.")
    gpu_hour_su: Rate | None = Field(None, description="Service units per GPU and hour.")
    gpu_type_hour_su: dict[Word, Rate] = Field(
        default_factory=dict, description="Service units per GPU and hour by its type."
    )
    node_hour_su: Rate | None = Field(None, description="Service units per node and hour.")
    cpu_hour_su: Rate | None = Field(None, description="Service units per CPU core and hour.")
    mem_gb_hour_su: Rate | None = Field(
        None, description="Service units per GiB of memory and hour."
    )
    valid_from: Moment | None = Field(
        None,
        description="The day from which it holds, in UTC, or a time with its offset; always if "
        "absent.",
    )

    @field_serializer("valid_from")
    def _time(self, value: Any) -> str | None:
        return None if value is None else to_text(value)

    def rate(self, kind: str, gpu_type: str, *, in_money: bool) -> Decimal | None:
        """What one hour of one of ``kind`` costs; None where nothing is said of it.

        Args:
            kind: a key of RATES.
            gpu_type: of GPUs: their type, a key of the site's ``gpu_types``.
        """
        name = RATES[kind][0 if in_money else 1]
        if kind == "gpu":
            by_type = self.gpu_type_hour_usd if in_money else self.gpu_type_hour_su
            if gpu_type in by_type:
                return by_type[gpu_type]
        found: Decimal | None = getattr(self, name)
        return found

    def priced_types(self) -> list[tuple[str, str]]:
        """The types of GPU that have a price of their own, each with the key that has it."""
        keys = ("gpu_type_hour_usd", "gpu_type_hour_su")
        return [(key, gpu_type) for key in keys for gpu_type in getattr(self, key)]

    def is_said(self, *, in_money: bool) -> bool:
        """Whether there is any price, in money or in service units."""
        by_type = self.gpu_type_hour_usd if in_money else self.gpu_type_hour_su
        names = [pair[0 if in_money else 1] for pair in RATES.values()]
        return bool(by_type) or any(getattr(self, name) is not None for name in names)


class Price(Rates):
    """What one hour costs, by what this site counts. Decimal; quote it in the file."""

    earlier: list[Rates] = Field(
        default_factory=list,
        description="What held before `valid_from`, the newest first: so that an old run keeps its "
        "price.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Price:
        require_order(self.valid_from, [rates.valid_from for rates in self.earlier])
        return self

    def periods(self, begin: datetime, end: datetime) -> list[tuple[datetime, datetime, Rates]]:
        """From ``begin`` to ``end``, cut where the price changed, oldest first.

        What nothing holds for, has rates that say nothing.
        """
        return periods_of((self, *self.earlier), begin, end, Rates())


class Dated(Protocol):
    """What holds from a time on."""

    @property
    def valid_from(self) -> datetime | None:
        """Always, where there is none."""
        ...


Held = TypeVar("Held", bound=Dated)


def require_order(newest: datetime | None, earlier: Sequence[datetime | None]) -> None:
    """See that what held ``earlier`` did so one after the other, the newest first.

    Raises:
        WrongKey: it did not, or nobody knows when it ended.
    """
    after = newest
    for index, valid_from in enumerate(earlier):
        if after is None:
            key = ("valid_from",) if index == 0 else ("earlier", index - 1, "valid_from")
            raise WrongKey("is missing: when did what was `earlier` end?", *key)
        if valid_from is not None and valid_from >= after:
            raise WrongKey(
                "must be before that of what came after it", "earlier", index, "valid_from"
            )
        after = valid_from


def periods_of(
    newest_first: Sequence[Held], begin: datetime, end: datetime, nothing: Held
) -> list[tuple[datetime, datetime, Held]]:
    """From ``begin`` to ``end``, cut where what holds has changed, oldest first; ``nothing`` is
    what holds before the oldest."""
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
