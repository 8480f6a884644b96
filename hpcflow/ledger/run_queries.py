"""Queries of the ledger: runs as they are shown. Read-only.

In a shared ledger a query reads the rows of this role, unless ``everyone`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from hpcflow.clock import to_text
from hpcflow.errors import NotFoundError
from hpcflow.ledger.clauses import marks, without_spoofed
from hpcflow.ledger.codec import columns, decode_all, decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import (
    ROWS,
    AttemptRow,
    CheckpointRow,
    MirroredRow,
    MirrorLagRow,
    RunRow,
)
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.model.views import AttemptView, CheckpointView, MirrorLag, RunDetail, RunView

View = TypeVar("View")


#: Field of a view -> column of another name: `user` is a function in SQL.
_COLUMNS: Final = {"user": "user_name", "number_of_attempts": "attempts"}


def columns_of(view: type) -> tuple[str, ...]:
    return tuple(_COLUMNS.get(name, name) for name in columns(view))


_RUN: Final = columns_of(RunView)
ATTEMPT: Final = columns(AttemptView)
#: Without the column of another table.
_CHECKPOINT: Final = columns(CheckpointView)[:-1]
_LAG: Final = columns(MirrorLag)
_TABLES: Final[dict[str, type]] = {**ROWS, "mirror_lag": MirrorLagRow}
#: Limit of another role's rows of one run.
_MOST: Final = " LIMIT 1000"


def runs(
    connection: Connection,
    *,
    limit: int | None = None,
    states: Iterable[RunState] | None = None,
    project: str | None = None,
    user: str | None = None,
    tag: str | None = None,
    name: str | None = None,
    sweep: str | None = None,
    has_sweep: bool | None = None,
    since: datetime | None = None,
    everyone: bool = False,
) -> list[RunView]:
    """Return the matching runs, newest first.

    Args:
        sweep: the id of a sweep, or the name of several.
        has_sweep: only trials of sweeps, or none of them; None for both.
        since: created then or later.
    """
    where = [f"1 = 1{without_spoofed(connection, 'run', everyone=everyone)}"]
    values: list[object] = []
    if states is not None:
        wanted = [RunState(state).value for state in states]
        where.append(f"state IN ({marks(wanted)})" if wanted else "1 = 0")
        values += wanted
    for condition, value in (
        ("project = ?", project),
        ("user_name = ?", user),
        ("name = ?", name),
        ("created_at >= ?", since and to_text(since)),
    ):
        if value is not None:
            where.append(condition)
            values.append(value)
    if sweep is not None:  # an id is the name, a date and eight characters
        where.append("(parent_sweep = ? OR parent_sweep LIKE ? ESCAPE '!')")
        values += [sweep, f"{_literal(sweep)}-{'_' * 8}-{'_' * 8}"]
    if has_sweep is not None:
        where.append(f"parent_sweep IS {'NOT ' if has_sweep else ''}NULL")
    if tag is not None:  # tags are names, so a quoted one is found in the JSON text
        find = "instr(tags, ?)" if connection.is_sqlite else "strpos(CAST(tags AS TEXT), ?)"
        where.append(f"{find} > 0")
        values.append(f'"{tag}"')
    any_number = limit is None
    kind = connection.url.kind
    what = selected(kind, RunRow, _RUN, everyone=everyone, any_number=any_number)
    sql = f"SELECT {what} FROM run WHERE {' AND '.join(where)} ORDER BY created_at DESC, run_id"  # noqa: S608 - our names, and marks
    if limit is not None:
        sql += " LIMIT ?"
        values.append(limit)
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(sql, values)
    return decode_sound(RunRow, _RUN, found, _run_view, connection.left_out)


def _literal(text: str) -> str:
    """Return ``text`` escaped for a LIKE pattern."""
    for char in "!%_":
        text = text.replace(char, f"!{char}")
    return text


def shared_run(connection: Connection, text: str) -> RunDetail | None:
    """Return any user's run: by id, by name (the newest), or by unique prefix; None without one.

    For display only: commands must not act on it.
    """
    owner = "NULL" if connection.is_sqlite else "owner"
    names = without_spoofed(connection, "run", everyone=True)
    sql = (
        f"SELECT run_id, name, {owner} FROM run "  # noqa: S608 - our names, and marks
        f"WHERE (run_id = ? OR name = ? OR run_id LIKE ? ESCAPE '!'){names} "
        "ORDER BY run_id = ? DESC, name = ? DESC, created_at DESC LIMIT 2"
    )
    with connection.transaction(write=False, everyone=True):
        found = connection.rows(sql, [text, text, f"{_literal(text)}%", text, text])
    if not found or (text not in found[0][:2] and len(found) > 1):
        return None
    run_id, _, role = found[0]
    return _run(connection, run_id, role)


def run(connection: Connection, run_id: str) -> RunDetail:
    """Return one run with all its details, or raise NotFoundError.

    Commands act on the result, so it contains no row of another role.
    """
    return _run(connection, run_id, None)


def _run(connection: Connection, run_id: str, role: str | None) -> RunDetail:
    names = (*_RUN, "resources", "command", "image", "params")
    of_run, most = ("run_id = ?", "") if role is None else ("run_id = ? AND owner = ?", _MOST)
    everyone = role is not None
    with connection.transaction(write=False, everyone=everyone):
        values = [run_id] if role is None else [run_id, role]
        of = partial(select, connection, values=values, everyone=everyone)
        found = of("run", names, of_run)
        tried = of("attempt", ATTEMPT, f"{of_run} ORDER BY attempt{most}")
        saved = of(
            "checkpoint",
            _CHECKPOINT,
            f"{of_run} AND removed IS NULL ORDER BY train_step, created_at, path{most}",
        )
        sent = of("mirrored", ("path", "at"), f"{of_run} AND state = 'mirrored'{most}")
        behind = [] if everyone else of("mirror_lag", _LAG, of_run)
    details = decode_all(
        RunRow,
        names,
        found,
        lambda *values: RunDetail(_run_view(*values[:-4]), *values[-4:]),
    )
    if not details:
        raise NotFoundError(
            f"the ledger has no run {run_id}", next_action="list them: hpcflow ls --all"
        )
    (detail,) = details
    detail.attempts.extend(decode_all(AttemptRow, ATTEMPT, tried, attempt_view))
    there = dict(decode_all(MirroredRow, ("path", "at"), sent, lambda path, at: (path, at)))
    detail.checkpoints.extend(
        replace(each, mirrored_at=there.get(each.path))
        for each in decode_all(CheckpointRow, _CHECKPOINT, saved, CheckpointView)
    )
    lags = decode_all(MirrorLagRow, _LAG, behind, MirrorLag)
    return replace(detail, mirror=lags[0]) if lags else detail


def select(
    connection: Connection,
    table: str,
    names: tuple[str, ...],
    where: str,
    values: Sequence[object],
    *,
    everyone: bool = False,
) -> list[Any]:
    what = selected(connection.url.kind, _TABLES[table], names, everyone=everyone)
    sql = f"SELECT {what} FROM {table} WHERE {where}"  # noqa: S608 - our names, and marks
    return connection.rows(sql, values)


def _run_view(*values: Any) -> RunView:
    return _RUN_WITH_WORDS(values)


def attempt_view(*values: Any) -> AttemptView:
    return _ATTEMPT_WITH_WORDS(values)


def _with_words(
    make: Callable[..., View], names: tuple[str, ...], state: type[Enum]
) -> Callable[[Sequence[Any]], View]:
    """Return a function that makes views with state and cause as enumerations."""
    at, why = names.index("state"), names.index("cause")
    states = {each.value: each for each in state}

    def view(values: Sequence[Any]) -> View:
        words = list(values)
        words[at] = states.get(words[at]) or state(words[at])
        words[why] = words[why] and Cause(words[why])
        return make(*words)

    return view


_RUN_WITH_WORDS: Final = _with_words(RunView, _RUN, RunState)
_ATTEMPT_WITH_WORDS: Final = _with_words(AttemptView, ATTEMPT, AttemptState)
