"""Find the best checkpoint of a run, by the metric in its config. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpcflow.ledger.rows import BestBy, CheckpointRow


def find_best(rows: Iterable[CheckpointRow], by: BestBy | None) -> CheckpointRow | None:
    """Return the best checkpoint not removed; of equals the earliest, as in the job's rule."""
    if by is None:
        return None
    sign = -1 if by.is_more_better else 1
    found = [row for row in rows if row.removed is None and by.metric in row.metrics]
    return min(
        found,
        key=lambda row: (sign * row.metrics[by.metric], row.train_step, row.path),
        default=None,
    )


def with_best(rows: Iterable[CheckpointRow], best: CheckpointRow | None) -> list[CheckpointRow]:
    """Return ``rows`` with ``is_best`` set for the best alone."""
    path = None if best is None else best.path
    return [replace(row, is_best=row.path == path) for row in rows]
