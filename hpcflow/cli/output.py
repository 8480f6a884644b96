"""Print values: JSON for scripts, texts and colours for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from hpcflow.clock import to_text
from hpcflow.errors import HpcflowError, Where
from hpcflow.model import next_action
from hpcflow.model.state import Cause, RunState
from hpcflow.terminal import echo, echo_as_is, echo_json, echo_message, escaped, progress, safe

if TYPE_CHECKING:
    from hpcflow.model.views import RunView

#: The format of every JSON document. docs/json.md says what raises it.
FORMAT: Final = 1

#: The number of list entries to encode at once.
_AT_ONCE: Final = 1000

#: JSON holds values of these types as they are.
_PLAIN: Final = frozenset({str, int, bool, type(None)})

STATE_COLOURS = {
    "created": "white",
    "submitting": "yellow",
    "queued": "yellow",
    "running": "cyan",
    "waiting": "magenta",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "pruned": "magenta",
}
#: Level of a check's result -> colour.
LEVEL_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}

#: Next action -> words.
_NEXT_WORDS: Final = {
    next_action.HELD: "held",
    next_action.CANCEL_JOBS: "cancelled: its job has not ended yet",
    next_action.SUBMIT_STANDBY: "standby: wanted",
    next_action.SETTLE_STANDBY: "standby: due",
}


def state_word(run: RunView) -> str:
    """Return the state of a run, for people: ``pruned`` if its sweep has pruned it."""
    if run.state is RunState.CANCELLED and run.cause is Cause.PRUNED:
        return "pruned"
    return run.state.value


def cause_word(run: RunView) -> str:
    """Return why its last attempt ended, if that differs from the state."""
    return "" if run.cause is None or run.cause.value == state_word(run) else run.cause.value


def state_text(run: RunView) -> str:
    """Return a text such as ``waiting (preempted)``."""
    cause = cause_word(run)
    return f"{state_word(run)} ({cause})" if cause else state_word(run)


def next_words(run: RunView) -> str:
    """Return words such as ``wait: backoff``; empty if nothing is known to come next."""
    action = run.next_action
    if action is None:
        return ""
    if action in _NEXT_WORDS:
        return _NEXT_WORDS[action]
    if action == next_action.AWAIT_STANDBY:
        return f"standby: {run.next_why} waits"
    # For a budget, its name helps more than the rule.
    rule = run.next_why if run.next_rule == next_action.OVER_BUDGET else run.next_rule
    return f"{action}: {rule}" if rule else action


def jsonable(value: Any) -> Any:
    """Return ``value`` for JSON: times and decimals as text, enums as values, NaN as None."""
    if type(value) in _PLAIN:  # most values
        return value
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: jsonable(item) for name, item in values_of(value).items()}
    if hasattr(type(value), "model_fields"):  # of pydantic, which is slow to import
        return {name: jsonable(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, (Path, Decimal)):
        return str(value)
    return None if isinstance(value, float) and not isfinite(value) else value


#: Most values need no change, and are encoded without a copy of them.
_ENCODER: Final = json.JSONEncoder(default=jsonable, allow_nan=False)


def as_document(value: Any) -> dict[str, Any]:
    """Return a dataclass or a mapping as a JSON document, with its format."""
    return {"format": FORMAT, **jsonable(value)}


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document on stdout; without ``indent`` on one line."""
    echo_json(as_document(value), indent=indent)


def picked(of: type, source: object, **more: object) -> dict[str, Any]:
    """Return the values of the type ``of``: from ``more``, else from the attributes of ``source``.

    The order of the keys is that of the type.
    """
    return {
        name: more[name] if name in more else getattr(source, name) for name in of.__annotations__
    }


def print_json_lines(head: dict[str, Any], **lists: Iterable[object]) -> None:
    """Print ``head`` and long lists as one JSON document, one entry a line.

    The whole document is never in memory, and Python encodes JSON much faster without an indent.
    """
    echo_as_is(escaped(json.dumps(as_document(head)))[:-1])
    for name, entries in lists.items():
        echo_as_is(f', "{name}": [')
        before = "\n"
        rest = iter(entries)
        while some := list(islice(rest, _AT_ONCE)):
            echo_as_is(before + escaped(",\n".join(map(_encode, some))))
            before = ",\n"
        echo_as_is("]" if before == "\n" else "\n]")
    echo_as_is("}\n")


def _encode(value: object) -> str:
    try:
        return _ENCODER.encode(value)
    except ValueError:  # a number that is not finite
        return _ENCODER.encode(jsonable(value))


class Problem(TypedDict):
    """One of several problems of a file."""

    file: str | None
    line: int | None
    key: str | None
    message: str


class _ErrorDetails(TypedDict, total=False):
    run_id: str
    run_dir: str
    job_id: str
    problems: list[Problem]


class ErrorJson(_ErrorDetails):
    """An error, its place, and the next action."""

    kind: str
    message: str
    file: str | None
    line: int | None
    key: str | None
    next_action: str | None
    retryable: bool


class ErrorOutput(TypedDict):
    """What a command prints if it fails."""

    error: ErrorJson


def error_json(error: HpcflowError) -> ErrorJson:
    from hpcflow.model.secret import redact

    place = error.where or Where()
    values: ErrorJson = {
        "kind": type(error).__name__,
        "message": redact(error.message),
        "file": place.file,
        "line": place.line,
        "key": place.key,
        "next_action": redact(error.next_action) if error.next_action else None,
        "retryable": error.retryable,
    }
    return cast("ErrorJson", {**values, **error.details})


def print_error(error: HpcflowError) -> None:
    from hpcflow.model.secret import redact

    echo("error: ", fg="red", bold=True, nl=False, err=True)
    echo_message(*map(redact, error.parts()), err=True)


@dataclass(frozen=True)
class Bar:
    """A progress bar; its functions take what those of ``rich.progress`` take, but no task."""

    update: Callable[..., object] = lambda **_changes: None
    reset: Callable[..., object] = lambda **_changes: None


@contextmanager
def progress_bar(*columns: str, shown: bool = True, **task: Any) -> Iterator[Bar]:
    """Show a progress bar on stderr until the end of the ``with`` block, if it is a terminal.

    Args:
        columns: names in ``rich.progress`` of the columns after the bar.
        task: its description and total.
    """
    if not shown or not sys.stderr.isatty():
        yield Bar()
        return
    from rich import progress as rich_progress

    made = [rich_progress.TextColumn("{task.description}", markup=False), rich_progress.BarColumn()]
    made += [getattr(rich_progress, name)() for name in columns]
    with progress(*made, err=True, transient=True) as bar:
        task_id = bar.add_task(**{"description": "", **task})
        yield Bar(partial(bar.update, task_id), partial(bar.reset, task_id))


def exit_code_of(codes: Iterable[int]) -> int:
    """Return the exit code that all share; 1 if they differ."""
    different = set(codes)
    return different.pop() if len(different) == 1 else 1


class ChangingLine:
    """A line of a log file, printed whenever it has changed."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, line: str) -> None:
        if line != self._last:
            echo(line)
            self._last = line


def values_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, by name."""
    return {name: getattr(value, name) for name in _field_names(value.__class__)}


@cache
def _field_names(of: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(of))


def metric_text(metrics: dict[str, float], *names: str) -> str:
    """Return ``loss 0.123  accuracy 0.97``: the named metrics that exist, or all."""
    chosen = [name for name in names if name in metrics] if names else sorted(metrics)
    return "  ".join(f"{name} {metrics[name]:.4g}" for name in chosen)


def value_text(value: object) -> str:
    """Return a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def site_text(site: str) -> str:
    """Return the name of a site for a terminal, also if a run, maybe another user's, has a path."""
    return safe(Path(site).stem if "/" in site else site)
