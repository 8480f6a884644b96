"""How values look: JSON for scripts, words and colours for people."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcflow.clock import to_text
from hpcflow.errors import HpcflowError, Where
from hpcflow.model.state import Cause, RunState
from hpcflow.storage.layout import RunDir
from hpcflow.terminal import echo, echo_json, echo_message, safe

if TYPE_CHECKING:
    from hpcflow.model.run import Run
    from hpcflow.model.views import RunDetail, RunView

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
#: Of what a check has found.
LEVEL_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def state_word(run: RunView) -> str:
    """Where a run stands, for people: a trial that its sweep has pruned is pruned."""
    if run.state is RunState.CANCELLED and run.cause is Cause.PRUNED:
        return "pruned"
    return run.state.value


def cause_word(run: RunView) -> str:
    """Why its last attempt ended, where the state does not say that."""
    return "" if run.cause is None or run.cause.value == state_word(run) else run.cause.value


def state_text(run: RunView) -> str:
    """``waiting (preempted)``."""
    cause = cause_word(run)
    return f"{state_word(run)} ({cause})" if cause else state_word(run)


def jsonable(value: Any) -> Any:
    """``value`` as JSON can hold it: times as text, enums as their words, no NaN or infinity."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not isfinite(value) else value


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    echo_json(jsonable(value), indent=2)


def error_json(error: HpcflowError) -> dict[str, Any]:
    """An error as scripts get it."""
    from hpcflow.model.secret import redact

    place = error.where or Where()
    return {
        "kind": type(error).__name__,
        "message": redact(error.message),
        "file": place.file,
        "line": place.line,
        "key": place.key,
        "next_action": redact(error.next_action) if error.next_action else None,
        "retryable": error.retryable,
        **error.details,
    }


def say_error(error: HpcflowError) -> None:
    """An error as people get it, on stderr."""
    from hpcflow.model.secret import redact

    echo("error: ", fg="red", bold=True, nl=False, err=True)
    echo_message(*map(redact, error.parts()), err=True)


def frozen_run(detail: RunDetail) -> Run | None:
    """Return what a run was frozen as; None if its run directory is gone."""
    from hpcflow.storage.rundir import read_run

    try:
        return read_run(RunDir(Path(detail.run.run_dir)))
    except HpcflowError:
        return None


def detail_json(detail: RunDetail, *, is_here: bool = True) -> dict[str, Any]:
    """A run with its attempts and checkpoints, as ``show --json`` prints it.

    The ledger knows checkpoints that were complete once; a purge, or their owner, may have taken
    them since.

    Args:
        is_here: whether its run directory may be opened: False for one of which a shared ledger
            tells.
    """
    from hpcflow.cli.failure import failure_of
    from hpcflow.storage.checkpoints import is_complete

    run = jsonable(detail.run)
    assert isinstance(run, dict)
    run["number_of_attempts"] = run.pop("attempts")
    run_dir = RunDir(Path(detail.run.run_dir))
    checkpoints = [
        {
            **jsonable(checkpoint),
            "complete": is_complete(run_dir, checkpoint.path) if is_here else None,
        }
        for checkpoint in detail.checkpoints
    ]
    frozen = frozen_run(detail) if is_here else None
    provenance = frozen.provenance if frozen else None
    return {
        **run,
        "params": jsonable(detail.params),
        "overrides": provenance and provenance.overrides,
        "commit": provenance and provenance.git_commit,
        "has_uncommitted_changes": provenance and provenance.git_dirty,
        "code": frozen and frozen.code and {"digest": frozen.code.digest, "root": frozen.code.root},
        "results": [each.model_dump() for each in frozen.results] if frozen else None,
        "started_from": frozen and frozen.started_from and frozen.started_from.model_dump(),
        "resources": detail.resources,
        "command": detail.command,
        "image": detail.image,
        "attempts": jsonable(detail.attempts),
        "checkpoints": checkpoints,
        "mirror": jsonable(detail.mirror),
        "failure": jsonable(failure_of(detail)) if is_here else None,
    }


def metric_text(metrics: dict[str, float], *names: str) -> str:
    """``loss 0.123  accuracy 0.97``: the named metrics, or all, as far as there are any."""
    chosen = [name for name in names if name in metrics] if names else sorted(metrics)
    return "  ".join(f"{name} {metrics[name]:.4g}" for name in chosen)


def site_text(site: str) -> str:
    """A site's name for a terminal, also where the run, maybe somebody else's, remembers a path."""
    return safe(Path(site).stem if "/" in site else site)
