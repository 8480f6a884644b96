"""A run as commands show it: in JSON, and the error of its last attempt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypedDict

from hpcflow.cli.output import next_words, values_of
from hpcflow.errors import HpcflowError, shell_word
from hpcflow.model.next_action import STOP
from hpcflow.model.secret import redact
from hpcflow.model.state import AttemptState, Cause
from hpcflow.model.views import AttemptView, CheckpointView, RunView
from hpcflow.storage.failure import Failure, read_failure
from hpcflow.storage.layout import Home
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.model.run import Result, Run
    from hpcflow.model.start import StartedFrom
    from hpcflow.model.views import MirrorLag, RunDetail


def frozen_run(detail: RunDetail, home: Home) -> Run | None:
    """Return the frozen run; None if its record cannot be read."""
    from hpcflow.storage.rundir import read_run

    try:
        return read_run(home.run_dir(detail.run.run_dir))
    except HpcflowError:
        return None


class ShownCode(TypedDict):
    """The snapshot of the code that a run executes, and the folder that it was copied from."""

    digest: str
    root: str


@dataclass(frozen=True, kw_only=True)
class ShownCheckpoint(CheckpointView):
    """A checkpoint; `complete` is null if its run directory cannot be read from here."""

    complete: bool | None


@dataclass(frozen=True, kw_only=True)
class ShownRun(RunView):
    """A run with its attempts and checkpoints; `failure` is null if its last attempt did not fail.

    `overrides`, `commit` and `has_uncommitted_changes` are null if unknown; `code` also if each
    attempt reads the code live. `results` has a result for each extension, `started_from` the
    checkpoint of another run that it began with. `is_unsupervised` says that it needs a daemon and
    has none; it is null for a run of another home.
    """

    params: dict[str, Any]
    overrides: list[str] | None
    commit: str | None
    has_uncommitted_changes: bool | None
    code: ShownCode | None
    results: list[Result] | None
    started_from: StartedFrom | None
    resources: dict[str, Any]
    command: list[str]
    image: str | None
    attempts: list[AttemptView]
    checkpoints: list[ShownCheckpoint]
    mirror: MirrorLag | None
    failure: Failure | None
    is_unsupervised: bool | None


def shown_run(
    detail: RunDetail, home: Home, unsupervised: Collection[str] = (), *, is_here: bool = True
) -> ShownRun:
    """Return a run with its attempts and checkpoints, as ``show --json`` prints it.

    Checkpoints in the ledger were complete once; a purge, or their owner, may have removed them.

    Args:
        unsupervised: the ids of the runs that need a daemon and have none.
        is_here: False for a run from a shared ledger, whose run directory must not be opened.
    """
    from hpcflow.storage.checkpoints import is_complete

    run_dir = home.run_dir(detail.run.run_dir)
    frozen = frozen_run(detail, home) if is_here else None
    provenance = frozen.provenance if frozen else None
    code = frozen.code if frozen else None
    return ShownRun(
        **values_of(detail.run),
        params=detail.params,
        overrides=provenance.overrides if provenance else None,
        commit=provenance.git_commit if provenance else None,
        has_uncommitted_changes=provenance.git_dirty if provenance else None,
        code=ShownCode(digest=code.digest, root=code.root) if code else None,
        results=frozen.results if frozen else None,
        started_from=frozen.started_from if frozen else None,
        resources=detail.resources,
        command=detail.command,
        image=detail.image,
        attempts=detail.attempts,
        checkpoints=[
            ShownCheckpoint(
                **values_of(each), complete=is_complete(run_dir, each.path) if is_here else None
            )
            for each in detail.checkpoints
        ],
        mirror=detail.mirror,
        failure=failure_of(detail, home) if is_here else None,
        is_unsupervised=detail.run.run_id in unsupervised if is_here else None,
    )


_FAILED: Final = (Cause.FAILED, Cause.OUT_OF_MEMORY)


def failure_of(detail: RunDetail, home: Home) -> Failure | None:
    """Return what the log of the last attempt says, if that attempt failed.

    People paste it into messages, so secrets are redacted. ``hpcflow logs`` has every byte.
    """
    jobs = [each for each in detail.attempts if each.state is not AttemptState.WITHDRAWN]
    if not jobs or jobs[-1].cause not in _FAILED:
        return None
    failure = read_failure(home.run_dir(detail.run.run_dir), jobs[-1].attempt)
    if failure is None:
        return None
    error = failure.error and redact(failure.error)
    at = failure.at and _in_own_folder(failure.at, frozen_run(detail, home))
    return replace(failure, error=error, at=at, lines=tuple(map(redact, failure.lines)))


def _in_own_folder(place: str, run: Run | None) -> str:
    """Return a place in the code snapshot as one in the folder that it was copied from."""
    if run is None or run.code is None or not place.startswith(f"{run.in_code()}/"):
        return place
    return run.code.root + place.removeprefix(run.in_code())


def print_failure(detail: RunDetail, home: Home) -> None:
    """Print the error of the last attempt and the last lines of its log, if it failed."""
    failure = failure_of(detail, home)
    if failure is None:
        return
    if failure.error is not None:
        rank = "" if failure.rank is None else f"rank {failure.rank}: "
        echo(f"  {'error':<14} {rank}{failure.error}", fg="red")
    if failure.at is not None:
        echo(f"  {'raised at':<14} {failure.at}")
    if failure.lines:
        echo(f"  {'last lines':<14} of {shell_word(failure.log)}")
        for line in failure.lines:
            echo(f"    {line}", dim=True)
    frozen = frozen_run(detail, home)
    if failure.error is not None and frozen is not None and frozen.code is not None:
        echo(f"  {'corrected?':<14} hpcflow resume {detail.run.run_id} --set code=snapshot")


def next_text(detail: RunDetail) -> str:
    """Return the next action of a run; if the run was stopped, with the reason."""
    run = detail.run
    why = f": {run.next_why}" if run.next_action == STOP and run.next_why else ""
    return next_words(run) + why
