"""Which checkpoints an object store has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hpcflow.ledger.types import UtcTime

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "mirrored",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("train_step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "path"),
    )
