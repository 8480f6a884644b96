"""The types of the GPUs that an attempt had; of those that have a bill already, from its lines."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

#: In Postgres, other roles may have written a row. hpcflow's own rows are far smaller.
_MAX_CHARACTERS = 1 << 20


def upgrade() -> None:
    op.add_column("attempt", sa.Column("gpu_type", sa.String()))
    connection = op.get_bind()
    billed = connection.execute(
        sa.text(
            "SELECT run_id, attempt, CAST(journal AS text) FROM attempt "
            "WHERE billed_by IS NOT NULL AND length(CAST(journal AS text)) <= :most"
        ),
        {"most": _MAX_CHARACTERS},
    )
    found = [
        {"run_id": run_id, "number": number, "gpu_type": _types(journal)}
        for run_id, number, journal in billed
    ]
    if found:
        update = (
            "UPDATE attempt SET gpu_type = :gpu_type WHERE run_id = :run_id AND attempt = :number"
        )
        connection.execute(sa.text(update), found)


def _types(journal: str) -> str | None:
    try:
        charges = json.loads(journal).get("accounted", {}).get("charges", [])
        kinds = [line["kind"].partition(":") for line in charges]
        types = ",".join(sorted({name or "?" for kind, _, name in kinds if kind == "gpu"}))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return types if types.isprintable() else None  # Postgres cannot store NUL or surrogates
