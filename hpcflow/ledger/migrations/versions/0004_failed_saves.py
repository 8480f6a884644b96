"""Why the newest save of a run has failed, as long as none has succeeded since."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("run", sa.Column("save_error", sa.String()))
