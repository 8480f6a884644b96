"""What attempts took and cost. The lines of a bill are in its attempt's journal, so the table that
was meant for them goes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hpcflow.ledger.types import Money, UtcTime

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.drop_table("cost_entry")
    op.add_column("run", sa.Column("cost_su", Money()))
    op.add_column(
        "run", sa.Column("is_estimate", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column("attempt", sa.Column("billed_by", sa.String()))
    op.add_column("attempt", sa.Column("elapsed_s", sa.Float()))
    op.add_column("attempt", sa.Column("gpu_hours", sa.Float()))
    op.add_column("attempt", sa.Column("cost_usd", Money()))
    op.add_column("attempt", sa.Column("cost_su", Money()))
    op.add_column("attempt", sa.Column("on_demand_usd", Money()))
    op.add_column("attempt", sa.Column("wasted_s", sa.Float()))
    op.add_column("attempt", sa.Column("bill_due_at", UtcTime()))
    op.create_index("attempt_by_bill_due_at", "attempt", ["bill_due_at"])
