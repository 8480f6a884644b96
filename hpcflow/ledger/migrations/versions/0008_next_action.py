"""What comes next of a run has columns of its own for its rule and its reason.

Before this version the column ``next_action`` had a text for people, such as ``wait: backoff``.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from hpcflow.runtime.reading import JsonError, parse_object

revision = "0008"
down_revision = "0007"

#: As in 0005: other roles may have written a row.
_MAX_CHARACTERS: Final = 1 << 20
#: The text, or its beginning -> the action.
_WHOLE: Final = {
    "held": "held",
    "standby: due": "settle_standby",
    "standby: wanted": "submit_standby",
    "cancelled: its job has not ended yet": "cancel_jobs",
}
_WAITING_STANDBY: Final = "standby: job "


def upgrade() -> None:
    op.add_column("run", sa.Column("next_rule", sa.String()))
    op.add_column("run", sa.Column("next_why", sa.String()))
    connection = op.get_bind()
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres:  # so that the owner of the table reaches the rows of all roles
        op.execute("ALTER TABLE run NO FORCE ROW LEVEL SECURITY")
    names = ("run_id", "journal", "next_action", "next_rule", "next_why", "owner")
    table = sa.table("run", *map(sa.column, names))
    owner = table.c.owner if is_postgres else sa.literal("")
    journal = sa.cast(table.c.journal, sa.Text)
    rows = connection.execute(
        sa.select(table.c.run_id, owner, table.c.next_action, journal).where(
            table.c.next_action.is_not(None), sa.func.length(journal) <= _MAX_CHARACTERS
        )
    )
    found = [
        {"of_run": run_id, "of_owner": role, **_parts(text, said)}
        for run_id, role, text, said in rows
    ]
    if found:
        update = (
            sa.update(table)
            .where(table.c.run_id == sa.bindparam("of_run"), owner == sa.bindparam("of_owner"))
            .values(
                next_action=sa.bindparam("action"),
                next_rule=sa.bindparam("rule"),
                next_why=sa.bindparam("why"),
            )
        )
        connection.execute(update, found)
    if is_postgres:
        op.execute("ALTER TABLE run FORCE ROW LEVEL SECURITY")


def _parts(text: str, journal: str) -> dict[str, str | None]:
    """Return action, rule and reason of a text."""
    if text in _WHOLE:
        return {"action": _WHOLE[text], "rule": None, "why": None}
    if text.startswith(_WAITING_STANDBY):
        why = text.removeprefix("standby: ").removesuffix(" waits")
        return {"action": "await_standby", "rule": None, "why": why}
    action, _, rule = text.partition(": ")
    if " " in rule:  # of a budget the text had the reason
        return {"action": action, "rule": "over_budget", "why": rule}
    return {"action": action, "rule": rule or None, "why": _why(journal, action, rule)}


def _why(journal: str, action: str, rule: str) -> str | None:
    """Return the reason of the daemon's decision, if it is the one that the text is about."""
    try:
        decided: Any = parse_object(journal).get("decided")
    except JsonError:
        return None
    if not isinstance(decided, dict) or (decided.get("action"), decided.get("rule")) != (
        action,
        rule,
    ):
        return None
    why = decided.get("why")
    # Postgres cannot store NUL or surrogates.
    return why if isinstance(why, str) and why.isprintable() else None
