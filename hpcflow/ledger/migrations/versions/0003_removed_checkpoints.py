"""Which checkpoints were removed on purpose, and by whom."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("removed", sa.String()))
