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
    owner = "owner" if is_postgres else "''"
    if is_postgres:  # so that the owner of the table reaches the rows of all roles
        op.execute("ALTER TABLE attempt NO FORCE ROW LEVEL SECURITY")
    billed = connection.execute(
        sa.text(
            f"SELECT run_id, attempt, {owner}, CAST(journal AS text) FROM attempt "  # noqa: S608 - our names
            "WHERE billed_by = 'accounting' AND length(CAST(journal AS text)) <= :most"
        ),
        {"most": _MAX_CHARACTERS},
    )
    found = [
        {"run_id": run_id, "number": number, "owner": role, "account": account}
        for run_id, number, role, journal in billed
        if (account := _account(journal)) is not None
    ]
    if found:
        update = (
            "UPDATE attempt SET account = :account "  # noqa: S608 - our names
            f"WHERE run_id = :run_id AND attempt = :number AND {owner} = :owner"
        )
        connection.execute(sa.text(update), found)
    if is_postgres:
        op.execute("ALTER TABLE attempt FORCE ROW LEVEL SECURITY")


def _account(journal: str) -> str | None:
    try:
        account = parse_object(journal).get("accounted", {}).get("account")
    except (AttributeError, JsonError):
        return None
    is_name = isinstance(account, str) and account.isprintable()
    return account if is_name else None  # Postgres cannot store NUL or surrogates
