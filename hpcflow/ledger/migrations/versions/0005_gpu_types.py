"""The types of the GPUs that an attempt had; of those that have a bill already, from its lines."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("attempt", sa.Column("gpu_type", sa.String()))
    connection = op.get_bind()
    billed = connection.execute(
        sa.text("SELECT run_id, attempt, journal FROM attempt WHERE billed_by IS NOT NULL")
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


def _types(journal: Any) -> str:
    said = json.loads(journal) if isinstance(journal, str) else journal
    kinds = [line["kind"].partition(":") for line in said.get("accounted", {}).get("charges", [])]
    return ",".join(sorted({name or "?" for kind, _, name in kinds if kind == "gpu"}))
