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
        for name in ("run", "attempt"):
            op.execute(f"ALTER TABLE {name} NO FORCE ROW LEVEL SECURITY")
    names = ("run_id", "journal", "next_action", "next_rule", "next_why", "owner")
    table = sa.table("run", *map(sa.column, names))
    owner = table.c.owner if is_postgres else sa.literal("")
    rows = connection.execute(
        sa.select(table.c.run_id, owner, table.c.next_action, _short(table.c.journal)).where(
            table.c.next_action.is_not(None)
        )
    )
    found = [
        {"of_run": run_id, "of_owner": role, **_parts(text, said or "")}
        for run_id, role, text, said in rows
    ]
    for each in found:
        if each["rule"] == "stalled":
            each["why"] = _why_stalled(connection, each["of_run"], each["of_owner"])
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
        for name in ("run", "attempt"):
            op.execute(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")


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


def _short(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return JSON as text; NULL where it is longer than hpcflow writes."""
    text = sa.cast(column, sa.Text)
    return sa.case((sa.func.length(text) <= _MAX_CHARACTERS, text), else_=None)


def _why(journal: str, action: str, rule: str) -> str | None:
    """Return the reason of the daemon's decision, if it is the one that the text is about."""
    decided = _object(journal).get("decided")
    if not isinstance(decided, dict):
        return None
    is_it = (decided.get("action"), decided.get("rule")) == (action, rule)
    return _text(decided.get("why")) if is_it else None


def _why_stalled(connection: sa.Connection, run_id: str | None, role: str | None) -> str | None:
    """Return the reason in the record of the newest attempt's stall."""
    names = ("run_id", "attempt", "state", "journal", "owner")
    table = sa.table("attempt", *map(sa.column, names))
    is_postgres = connection.dialect.name == "postgresql"
    query = sa.select(_short(table.c.journal)).where(
        table.c.run_id == run_id, table.c.state != "withdrawn"
    )
    if is_postgres:
        query = query.where(table.c.owner == role)
    journal = connection.execute(query.order_by(table.c.attempt.desc()).limit(1)).scalar()
    stall = _object(journal or "").get("stall")
    return _text(stall.get("why")) if isinstance(stall, dict) else None


def _object(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except JsonError:
        return {}


def _text(value: object) -> str | None:
    """Return a text as every database stores it: as ``clean()`` in ``hpcflow/ledger/fold.py``."""
    if not isinstance(value, str):
        return None
    return (
        value[:10_000]
        .replace("\0", "\N{REPLACEMENT CHARACTER}")
        .encode("utf-8", "replace")
        .decode()
    )
