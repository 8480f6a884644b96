"""How far the mirror of each run is behind: a view, for all that it says follows from the tables.

Whoever changes a table that it reads, later, drops it before and creates it anew.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"

#: Where the last attempt says that the run is mirrored to.
_URL = {
    "sqlite": "CASE WHEN json_valid(journal) THEN json_extract(journal, '$.intended.mirror') END",
    "postgresql": "journal -> 'intended' ->> 'mirror'",
}


def upgrade() -> None:
    op.execute(
        f"""
        CREATE VIEW mirror_lag AS
        WITH target AS (
            SELECT run_id, rtrim({_URL[op.get_bind().dialect.name]}, '/') AS url
            FROM attempt
            WHERE attempt = (
                SELECT max(last.attempt) FROM attempt AS last WHERE last.run_id = attempt.run_id
            )
        ),
        place AS (
            SELECT run_id, url, (
                SELECT max(train_step) FROM mirrored
                WHERE mirrored.run_id = target.run_id AND mirrored.url = target.url
                AND state = 'mirrored'
            ) AS mirrored
            FROM target WHERE url IS NOT NULL
        )
        SELECT place.run_id, url, max(train_step) AS newest, mirrored,
            min(CASE WHEN train_step > coalesce(mirrored, -1) THEN created_at END) AS behind_since
        FROM place LEFT JOIN checkpoint ON checkpoint.run_id = place.run_id
            AND removed IS NULL AND path LIKE 'checkpoints/%'
        GROUP BY place.run_id, url, mirrored
        """  # noqa: S608 - a constant
    )
