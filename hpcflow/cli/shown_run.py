"""A run as ``show``, ``wait`` and ``--follow`` print it in JSON."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from hpcflow.cli.output import values_of
from hpcflow.errors import HpcflowError
from hpcflow.model.views import AttemptView, CheckpointView, RunView
from hpcflow.storage.layout import Home

if TYPE_CHECKING:
    from hpcflow.model.run import Result, Run
    from hpcflow.model.start import StartedFrom
    from hpcflow.model.views import MirrorLag, RunDetail
    from hpcflow.storage.failure import Failure


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
    from hpcflow.cli.failure import failure_of
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
