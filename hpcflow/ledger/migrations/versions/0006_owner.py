"""Rows belong to the Postgres role that wrote them, and only it can change them.

In a database that several users share, each row has an ``owner``, which is part of its key: so two
roles cannot take each other's ids. Row-level security shows a role only its own rows, unless a
query asks for everyone's (:meth:`hpcflow.ledger.connection.Connection.transaction`).

Before this version, a role with the right to write could write rows of every run. hpcflow cannot
tell which of them are true. So if another role has such a right, the upgrade deletes all rows.
SQLite has neither roles nor this column.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

#: Table -> its key before.
_KEYS: Final = {
    "run": "run_id",
    "attempt": "run_id, attempt",
    "checkpoint": "run_id, path",
    "mirrored": "run_id, path",
    "source": "run_id, path",
    "lease": "name",
}
#: The tables whose rows belong to a run.
_OF_RUN: Final = ("attempt", "checkpoint", "mirrored", "source")


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    op.execute("DROP VIEW mirror_lag")
    if connection.execute(sa.text(_OTHERS_COULD_WRITE)).scalar():
        op.execute(f"TRUNCATE {', '.join(_KEYS)}")
    for table in _OF_RUN:
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_run_id_fkey")
    for table, key in _KEYS.items():
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN owner name NOT NULL DEFAULT current_user, "
            f"DROP CONSTRAINT {table}_pkey, ADD PRIMARY KEY ({key}, owner)"
        )
    for table in _OF_RUN:
        op.execute(
            f"ALTER TABLE {table} ADD FOREIGN KEY (run_id, owner) REFERENCES run ON DELETE CASCADE"
        )
    for table in _KEYS:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY own ON {table} USING (owner = current_user) "
            "WITH CHECK (owner = current_user)"
        )
        op.execute(
            f"CREATE POLICY everyone ON {table} FOR SELECT "
            "USING (current_setting('hpcflow.everyone', true) = 'on')"
        )
    # Before version 15, a view has the rights of its owner. But the policies compare with
    # `current_user`, which is the reader also in a view.
    version = connection.dialect.server_version_info or (0,)
    as_reader = "WITH (security_invoker = true)" if version >= (15,) else ""
    op.execute(_MIRROR_LAG.format(as_reader=as_reader))


#: Whether a role other than the owner has any right but SELECT.
_OTHERS_COULD_WRITE: Final = f"""
SELECT EXISTS (
    SELECT FROM pg_class, aclexplode(relacl) AS granted
    WHERE oid = ANY (ARRAY[{", ".join(f"'{table}'::regclass" for table in _KEYS)}])
        AND granted.privilege_type <> 'SELECT'
        AND granted.grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user)
)
"""  # noqa: S608 - our names

#: As in 0003, but each row belongs to one owner.
_MIRROR_LAG: Final = """
CREATE VIEW mirror_lag {as_reader} AS
SELECT run.run_id, run.mirror_url AS url, max(here.train_step) AS newest, (
        SELECT max(sent.train_step)
        FROM mirrored AS sent LEFT JOIN checkpoint AS anew
            ON anew.run_id = sent.run_id AND anew.owner = sent.owner AND anew.path = sent.path
            AND anew.removed IS NULL AND anew.created_at > sent.at
        WHERE sent.run_id = run.run_id AND sent.owner = run.owner AND sent.url = run.mirror_url
        AND sent.state = 'mirrored' AND anew.path IS NULL
    ) AS mirrored,
    min(CASE WHEN NOT EXISTS (
        SELECT 1 FROM mirrored AS sent
        WHERE sent.run_id = run.run_id AND sent.owner = run.owner AND sent.url = run.mirror_url
        AND sent.state = 'mirrored'
        AND sent.train_step >= here.train_step AND sent.at >= here.created_at
    ) THEN here.created_at END) AS behind_since,
    run.owner
FROM run LEFT JOIN checkpoint AS here
    ON here.run_id = run.run_id AND here.owner = run.owner
    AND here.removed IS NULL AND here.path LIKE 'checkpoints/%'
WHERE run.mirror_url IS NOT NULL
GROUP BY run.run_id, run.owner, run.mirror_url
"""
