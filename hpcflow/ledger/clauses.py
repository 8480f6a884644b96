"""SQL clauses that several queries share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hpcflow.ledger.connection import Connection
from hpcflow.model.state import AttemptState

#: The states of attempts that are neither ended nor withdrawn, listed because an index finds only
#: listed values.
LIVE: Final = tuple(
    each.value for each in AttemptState if each not in (AttemptState.ENDED, AttemptState.WITHDRAWN)
)
#: Parameters of one statement. SQLite before 3.32 accepts 999.
_MOST_MARKS: Final = 900


def same_run(connection: Connection, table: str) -> str:
    """Return SQL for "a row of ``table`` belongs to this row of ``run``"."""
    same = f"{table}.run_id = run.run_id"
    return same if connection.is_sqlite else f"{same} AND {table}.owner = run.owner"


def without_spoofed(connection: Connection, table: str, *, everyone: bool) -> str:
    """Return SQL that excludes other roles' rows about runs of this role, which may be spoofed.

    It begins with AND; it is empty if no rows of other roles are read.
    """
    if not everyone or connection.is_sqlite:
        return ""
    mine = "SELECT run_id FROM run AS mine WHERE mine.owner = current_user"
    return f" AND ({table}.owner = current_user OR {table}.run_id NOT IN ({mine}))"


def among(connection: Connection, ids: Iterable[str]) -> Iterator[tuple[str, list[object]]]:
    """Yield SQL for "is one of ``ids``" and its sorted parameters, as many as a statement accepts.

    Postgres gets them as one array, so driver and server parse and plan the statement once.
    """
    in_order = sorted(set(ids))
    for begin in range(0, len(in_order), _MOST_MARKS):
        some = in_order[begin : begin + _MOST_MARKS]
        yield (f"IN ({marks(some)})", [*some]) if connection.is_sqlite else ("= ANY(?)", [some])


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
