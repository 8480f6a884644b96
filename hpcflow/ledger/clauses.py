"""SQL clauses that several queries share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hpcflow.ledger.connection import Connection
from hpcflow.model.state import AttemptState

#: The states of attempts that are neither ended nor withdrawn. By name, for an index finds what is
#: asked for, and not what is not.
LIVE: Final = tuple(
    each.value for each in AttemptState if each not in (AttemptState.ENDED, AttemptState.WITHDRAWN)
)
#: Parameters of one statement. SQLite before 3.32 takes 999.
_MOST_MARKS: Final = 900


def same_run(connection: Connection, table: str) -> str:
    """Return SQL for "a row of ``table`` belongs to this row of ``run``"."""
    same = f"{table}.run_id = run.run_id"
    return same if connection.is_sqlite else f"{same} AND {table}.owner = run.owner"


def without_spoofed(connection: Connection, table: str, *, everyone: bool) -> str:
    """Return SQL that begins with AND and leaves out rows of other roles about runs of this role:
    other roles can write rows with the same ids. Empty if no rows of other roles are read."""
    if not everyone or connection.is_sqlite:
        return ""
    mine = "SELECT run_id FROM run AS mine WHERE mine.owner = current_user"
    return f" AND ({table}.owner = current_user OR {table}.run_id NOT IN ({mine}))"


def among(connection: Connection, ids: Iterable[str]) -> Iterator[tuple[str, list[object]]]:
    """Yield SQL for "is one of ``ids``" and its sorted parameters, as many as a statement takes.

    Postgres takes them as one array: so driver and server parse and plan one text, once.
    """
    in_order = sorted(set(ids))
    for begin in range(0, len(in_order), _MOST_MARKS):
        some = in_order[begin : begin + _MOST_MARKS]
        yield (f"IN ({marks(some)})", [*some]) if connection.is_sqlite else ("= ANY(?)", [some])


def marks(values: Sequence[object]) -> str:
    """Return a mark for each value, as in ``IN (?, ?)``."""
    return ", ".join("?" * len(values))
