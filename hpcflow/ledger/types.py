"""Column types for times and money that mean the same in SQLite and in Postgres."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal

from sqlalchemy import DateTime, Dialect, Numeric, String
from sqlalchemy.types import TypeDecorator, TypeEngine

from hpcflow.clock import from_text, to_text


class UtcTime(TypeDecorator[datetime]):
    """An aware time: ``timestamptz`` in Postgres, RFC 3339 text with ``Z`` elsewhere."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime] | TypeEngine[str]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(String(32))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        return value if value is None or dialect.name == "postgresql" else to_text(value)

    def process_result_value(self, value: object, _: Dialect) -> datetime | None:
        if isinstance(value, datetime):
            return value.astimezone(timezone.utc)
        return from_text(value) if isinstance(value, str) else None


class Money(TypeDecorator[Decimal]):
    """An exact decimal number: ``numeric`` in Postgres, text elsewhere; never a float."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Decimal] | TypeEngine[str]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(Numeric())
        return dialect.type_descriptor(String(64))

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> object:
        return value if value is None or dialect.name == "postgresql" else f"{value:f}"

    def process_result_value(self, value: object, _: Dialect) -> Decimal | None:
        return None if value is None else Decimal(str(value))
