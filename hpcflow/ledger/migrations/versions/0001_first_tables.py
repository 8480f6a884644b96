"""The first tables: run, attempt, checkpoint, cost entry, source."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TIME = sa.String(32).with_variant(sa.DateTime(timezone=True), "postgresql")
MONEY = sa.String(64).with_variant(sa.Numeric(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "run",
        sa.Column("run_id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("framework", sa.String(), nullable=False),
        sa.Column("run_dir", sa.String(), nullable=False),
        sa.Column("partition", sa.String(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("gpu_type", sa.String()),
        sa.Column("image", sa.String()),
        sa.Column("parent_sweep", sa.String()),
        sa.Column("estimated_cost_usd", MONEY),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.Column("command", sa.JSON(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("cause", sa.String()),
        sa.Column("started_at", TIME),
        sa.Column("completed_at", TIME),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String()),
        sa.Column("train_step", sa.BigInteger()),
        sa.Column("total_train_steps", sa.BigInteger()),
        sa.Column("epoch", sa.Float()),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("best_metric", sa.Float()),
        sa.Column("final_model", sa.String()),
        sa.Column("gpu_hours", sa.Float()),
        sa.Column("cost_usd", MONEY),
        sa.Column("journal", sa.JSON(), nullable=False),
        sa.Column("journal_at", TIME),
        sa.Column("bytes_read", sa.BigInteger(), nullable=False),
    )
    op.create_index("run_by_created_at", "run", ["created_at"])
    op.create_index("run_by_state", "run", ["state", "journal_at"])
    op.create_table(
        "attempt",
        _run_id(),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("job_name", sa.String(), nullable=False),
        sa.Column("job_id", sa.String()),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("raw_state", sa.String()),
        sa.Column("cause", sa.String()),
        sa.Column("reason", sa.String()),
        sa.Column("rule", sa.String()),
        sa.Column("partition", sa.String()),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("submitted_at", TIME),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("resume_from", sa.String()),
        sa.Column("journal", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
    )
    op.create_index("attempt_by_state", "attempt", ["state"])
    op.create_table(
        "checkpoint",
        _run_id(),
        sa.Column("path", sa.String(), primary_key=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("train_step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Float()),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("is_best", sa.Boolean(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "cost_entry",
        _run_id(),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(), primary_key=True),
        sa.Column("period_start", TIME, primary_key=True),
        sa.Column("period_end", TIME, nullable=False),
        sa.Column("amount", MONEY, nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("cost_usd", MONEY),
        sa.Column("is_estimate", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "source",
        _run_id(),
        sa.Column("path", sa.String(), primary_key=True),
        sa.Column("offset_bytes", sa.BigInteger(), nullable=False),
        sa.Column("in_long_line", sa.Boolean(), nullable=False),
        sa.Column("skipped_lines", sa.Integer(), nullable=False),
    )


def _run_id() -> sa.Column[str]:
    return sa.Column(
        "run_id",
        sa.String(),
        sa.ForeignKey("run.run_id", ondelete="CASCADE"),
        primary_key=True,
    )
