"""The tables of the ledger, for alembic, which compares them with a database, and for ORM queries.

``rows.py`` names the columns; here they get keys, indexes and the types of a database. Nothing else
in hpcflow imports this, because sqlmodel takes a third of a second. Every value can be derived
again from run.json, journal and events; a new column needs a migration.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any, Final, get_type_hints

from pydantic import create_model
from sqlalchemy import JSON, BigInteger, Index
from sqlmodel import Field, SQLModel

from hpcflow.ledger.rows import AttemptRow, CheckpointRow, MirroredRow, RunRow, SourceRow
from hpcflow.ledger.types import Money, UtcTime

_TYPES: Final = {"time": UtcTime, "json": JSON, "money": Money}
#: Numbers that may have more than 32 bits.
_LARGE: Final = frozenset(
    {"train_step", "total_train_steps", "size_bytes", "bytes_read", "offset_bytes"}
)


def _table(name: str, row_type: type, *key: str) -> Any:
    types = get_type_hints(row_type)
    columns: dict[str, Any] = {}
    for each in fields(row_type):
        options: dict[str, Any] = {"primary_key": each.name in key}
        if each.name == "run_id" and row_type is not RunRow:
            options |= {"foreign_key": "run.run_id", "ondelete": "CASCADE"}
        if (kind := each.metadata.get("kind")) in _TYPES:
            options["sa_type"] = _TYPES[kind]
        elif each.name in _LARGE:
            options["sa_type"] = BigInteger
        columns[each.name] = types[each.name], Field(**options)
    base: Any = SQLModel
    return create_model(name, __base__=base, __cls_kwargs__={"table": True}, **columns)


Run: Final = _table("Run", RunRow, "run_id")
Attempt: Final = _table("Attempt", AttemptRow, "run_id", "attempt")
Checkpoint: Final = _table("Checkpoint", CheckpointRow, "run_id", "path")
Mirrored: Final = _table("Mirrored", MirroredRow, "run_id", "path")
Source: Final = _table("Source", SourceRow, "run_id", "path")
Index("run_by_created_at", Run.created_at)
Index("run_by_state", Run.state, Run.journal_at)
Index("attempt_by_state", Attempt.state)
Index("attempt_by_bill_due_at", Attempt.bill_due_at)


class Lease(SQLModel, table=True):
    """The process that acts for this ledger. Not derived from files."""

    __tablename__ = "lease"

    name: str = Field(primary_key=True)
    holder: str
    host: str
    pid: int
    fence: int = Field(sa_type=BigInteger)
    acquired_at: datetime = Field(sa_type=UtcTime)
    renewed_at: datetime = Field(sa_type=UtcTime)
    expires_at: datetime = Field(sa_type=UtcTime)
