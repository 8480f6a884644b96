"""Checkpoints that were removed on purpose, saves that failed, and what an object store has.

How far the mirror is behind is a view, for it follows from the tables. Whoever changes a table that
it reads, later, drops it before and creates it anew. A checkpoint is in the store once that train
step, or a later one, was mirrored after it was made: a run that goes on from an older checkpoint
makes lower train steps later, or the same ones again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hpcflow.ledger.types import UtcTime

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("removed", sa.String()))
    op.add_column("run", sa.Column("save_error", sa.String()))
    op.add_column("run", sa.Column("mirror_url", sa.String()))
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
    op.execute(
        """
        CREATE VIEW mirror_lag AS
        SELECT run.run_id, run.mirror_url AS url, max(here.train_step) AS newest, (
                SELECT max(sent.train_step)
                FROM mirrored AS sent LEFT JOIN checkpoint AS anew
                    ON anew.run_id = sent.run_id AND anew.path = sent.path
                    AND anew.removed IS NULL AND anew.created_at > sent.at
                WHERE sent.run_id = run.run_id AND sent.url = run.mirror_url
                AND sent.state = 'mirrored' AND anew.path IS NULL
            ) AS mirrored,
            min(CASE WHEN NOT EXISTS (
                SELECT 1 FROM mirrored AS sent
                WHERE sent.run_id = run.run_id AND sent.url = run.mirror_url
                AND sent.state = 'mirrored'
                AND sent.train_step >= here.train_step AND sent.at >= here.created_at
            ) THEN here.created_at END) AS behind_since
        FROM run LEFT JOIN checkpoint AS here ON here.run_id = run.run_id
            AND here.removed IS NULL AND here.path LIKE 'checkpoints/%'
        WHERE run.mirror_url IS NOT NULL
        GROUP BY run.run_id, run.mirror_url
        """
    )
