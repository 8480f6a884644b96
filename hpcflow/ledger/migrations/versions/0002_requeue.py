"""What is to come of a run, and who acts for the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TIME = sa.String(32).with_variant(sa.DateTime(timezone=True), "postgresql")


def upgrade() -> None:
    op.add_column("run", sa.Column("next_action", sa.String()))
    op.add_column("run", sa.Column("next_at", TIME))
    op.create_table(
        "lease",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("acquired_at", TIME, nullable=False),
        sa.Column("renewed_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        # Every round writes every run that reports progress. With room for the new row beside the
        # old one no index is touched, and the tables do not grow to three times their size.
        for table in ("run", "attempt", "source"):
            op.execute(f"ALTER TABLE {table} SET (fillfactor = 50)")
