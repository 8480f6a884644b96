"""The account that an attempt is charged to, and its parts where there are several; of those that
have a bill already, the account that it names.

Bills from before this version are in one part. An attempt without a bill has no account: older
journals do not name the one that its job asked for.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hpcflow.runtime.reading import JsonError, parse_object

revision = "0007"
down_revision = "0006"

#: As in 0005: other roles may have written a row.
_MAX_CHARACTERS = 1 << 20


def upgrade() -> None:
    op.add_column("attempt", sa.Column("account", sa.String()))
    op.add_column("attempt", sa.Column("parts", sa.JSON()))
    connection = op.get_bind()
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres:  # so that the owner of the table reaches the rows of all roles
        op.execute("ALTER TABLE attempt NO FORCE ROW LEVEL SECURITY")
    names = ("run_id", "attempt", "journal", "billed_by", "account", "owner")
    table = sa.table("attempt", *map(sa.column, names))
    owner = table.c.owner if is_postgres else sa.literal("")
    text = sa.cast(table.c.journal, sa.Text)
    billed = connection.execute(
        sa.select(table.c.run_id, table.c.attempt, owner, text).where(
            table.c.billed_by == "accounting", sa.func.length(text) <= _MAX_CHARACTERS
        )
    )
    found = [
        {"of_run": run_id, "of_attempt": number, "of_owner": role, "said": account}
        for run_id, number, role, journal in billed
        if (account := _account(journal)) is not None
    ]
    if found:
        update = (
            sa.update(table)
            .where(
                table.c.run_id == sa.bindparam("of_run"),
                table.c.attempt == sa.bindparam("of_attempt"),
                owner == sa.bindparam("of_owner"),
            )
            .values(account=sa.bindparam("said"))
        )
        connection.execute(update, found)
    if is_postgres:
        op.execute("ALTER TABLE attempt FORCE ROW LEVEL SECURITY")


def _account(journal: str) -> str | None:
    try:
        account = parse_object(journal).get("accounted", {}).get("account")
    except (AttributeError, JsonError):
        return None
    is_name = isinstance(account, str) and account.isprintable()
    return account if is_name else None  # Postgres cannot store NUL or surrogates
