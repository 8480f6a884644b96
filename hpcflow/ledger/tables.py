"""The tables of the ledger, for alembic, which compares them with a database, and for ORM queries.

``rows.py`` has the same columns as plain values; a test compares the two. Nothing else in hpcflow
imports this, because sqlmodel takes a third of a second. Every value can be derived again from
run.json, journal and events; a new column needs a migration.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import JSON, BigInteger, Index
from sqlmodel import Field, SQLModel

from hpcflow.ledger.types import Money, UtcTime


def _run_id(**options: Any) -> Any:
    return Field(primary_key=True, foreign_key="run.run_id", ondelete="CASCADE", **options)


class Run(SQLModel, table=True):
    """One run. Cost and GPU hours are estimates until accounting has final values."""

    __tablename__ = "run"
    __table_args__ = (
        Index("run_by_created_at", "created_at"),
        Index("run_by_state", "state", "journal_at"),
    )

    run_id: str = Field(primary_key=True)
    name: str
    user_name: str
    project: str
    site: str
    framework: str
    run_dir: str
    partition: str
    nodes: int
    gpus: int
    gpu_type: str | None
    image: str | None
    parent_sweep: str | None
    mirror_url: str | None
    estimated_cost_usd: Decimal | None = Field(sa_type=Money)
    created_at: datetime = Field(sa_type=UtcTime)
    resources: dict[str, Any] = Field(sa_type=JSON)
    command: list[str] = Field(sa_type=JSON)
    params: dict[str, Any] = Field(sa_type=JSON)
    data: dict[str, str] = Field(sa_type=JSON)
    tags: list[str] = Field(sa_type=JSON)
    state: str
    cause: str | None
    started_at: datetime | None = Field(sa_type=UtcTime)
    completed_at: datetime | None = Field(sa_type=UtcTime)
    attempts: int
    job_id: str | None
    train_step: int | None = Field(sa_type=BigInteger)
    total_train_steps: int | None = Field(sa_type=BigInteger)
    epoch: float | None
    metrics: dict[str, float] = Field(sa_type=JSON)
    best_metric: float | None
    final_model: str | None
    save_error: str | None
    gpu_hours: float | None
    cost_usd: Decimal | None = Field(sa_type=Money)
    cost_su: Decimal | None = Field(sa_type=Money)
    is_estimate: bool
    next_action: str | None
    next_rule: str | None
    next_why: str | None
    next_at: datetime | None = Field(sa_type=UtcTime)
    journal: dict[str, Any] = Field(sa_type=JSON)
    journal_at: datetime | None = Field(sa_type=UtcTime)
    bytes_read: int = Field(sa_type=BigInteger)


class Attempt(SQLModel, table=True):
    __tablename__ = "attempt"
    __table_args__ = (
        Index("attempt_by_state", "state"),
        Index("attempt_by_bill_due_at", "bill_due_at"),
    )

    run_id: str = _run_id()
    attempt: int = Field(primary_key=True)
    job_name: str
    job_id: str | None
    state: str
    raw_state: str | None
    cause: str | None
    reason: str | None
    rule: str | None
    partition: str | None
    nodes: list[str] = Field(sa_type=JSON)
    submitted_at: datetime | None = Field(sa_type=UtcTime)
    started_at: datetime | None = Field(sa_type=UtcTime)
    ended_at: datetime | None = Field(sa_type=UtcTime)
    exit_code: int | None
    resume_from: str | None
    journal: dict[str, Any] = Field(sa_type=JSON)
    report: dict[str, Any] = Field(sa_type=JSON)
    billed_by: str | None
    elapsed_s: float | None
    gpu_type: str | None
    gpu_hours: float | None
    cost_usd: Decimal | None = Field(sa_type=Money)
    cost_su: Decimal | None = Field(sa_type=Money)
    on_demand_usd: Decimal | None = Field(sa_type=Money)
    wasted_s: float | None
    bill_due_at: datetime | None = Field(sa_type=UtcTime)
    account: str | None
    parts: list[dict[str, Any]] | None = Field(sa_type=JSON)


class Checkpoint(SQLModel, table=True):
    """One complete checkpoint, or, with ``removed``, a former one."""

    __tablename__ = "checkpoint"

    run_id: str = _run_id()
    path: str = Field(primary_key=True)
    attempt: int
    train_step: int = Field(sa_type=BigInteger)
    epoch: float | None
    size_bytes: int = Field(sa_type=BigInteger)
    metrics: dict[str, float] = Field(sa_type=JSON)
    is_best: bool
    created_at: datetime = Field(sa_type=UtcTime)
    removed: str | None


class Mirrored(SQLModel, table=True):
    """The last reported state of a checkpoint in an object store."""

    __tablename__ = "mirrored"

    run_id: str = _run_id()
    path: str = Field(primary_key=True)
    train_step: int = Field(sa_type=BigInteger)
    state: str
    url: str
    size_bytes: int = Field(sa_type=BigInteger)
    at: datetime = Field(sa_type=UtcTime)


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


class Source(SQLModel, table=True):
    """How far a file of a run directory was read; written together with its data."""

    __tablename__ = "source"

    run_id: str = _run_id()
    path: str = Field(primary_key=True)
    offset_bytes: int = Field(sa_type=BigInteger)
    in_long_line: bool
    skipped_lines: int
