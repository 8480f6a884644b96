"""Change what a run requests before it is resubmitted: other resources, another partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from hpcflow.config import change_spec
from hpcflow.errors import InputError, Where
from hpcflow.model.journal import Changed
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import Result, Run
from hpcflow.ownership import Trust
from hpcflow.placement.choosing import charged_to
from hpcflow.placement.price import estimate_cost_usd
from hpcflow.placement.run_paths import variables
from hpcflow.provenance.code_state import DIFF_FILE
from hpcflow.provenance.frozen_code import (
    code_folder,
    frozen_code,
    no_code,
    own_code,
    snapshot_of,
    state_of,
)
from hpcflow.provenance.snapshot import Taken
from hpcflow.settings import Settings
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage.checkpoints import newest_complete
from hpcflow.storage.files import write_durably
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.path_check import checked_runtime_sums
from hpcflow.storage.rundir import frozen_json, renew_params
from hpcflow.storage.runtime_copy import installed_sum

_STAYS: Final = {
    "name": "the run directory has this name",
    "project": "the run directory is in the folder of the project",
    "start_from": "the checkpoint was copied when the run was created",
}


@dataclass(frozen=True)
class Change:
    """A run with a changed request.

    Attributes:
        diff: the uncommitted changes of its new code; None if the code is unchanged.
        warnings: about code that is read live.
    """

    run: Run
    diff: bytes | None = None
    warnings: tuple[str, ...] = ()


def changed(run: Run, overrides: Sequence[str], *, site: Site, settings: Settings) -> Change:
    """Return ``run`` with ``overrides``; nothing is written.

    Raises:
        SpecError: an override is wrong, a file that the new spec names is missing or unsafe, or it
            does not fit the site any more.
        InputError: it changes a key of :data:`_STAYS`, or no snapshot of its code can be taken.
        StorageError: the snapshot of its code is lost.
    """
    spec = change_spec(run.spec, overrides, checks_files=True)
    for key, why in _STAYS.items():
        if getattr(spec, key) != getattr(run.spec, key):
            raise InputError(
                f"the {key} of a run cannot be changed: {why}",
                where=Where(key=f"--set {key}"),
                next_action="start a new run: hpcflow run CONFIG",
            )
    if spec.resources.account == AUTO:  # decided when the run was created
        spec = charged_to(spec, run.spec.resources.account)
    placement = place(spec, site, prefer=run.partition)
    update: dict[str, object] = {
        "spec": spec,
        "partition": placement.partition,
        "gpu_type": placement.gpu_type,
        "estimated_cost_usd": estimate_cost_usd(placement, run.created_at),
    }
    if spec.mirror != run.spec.mirror:
        update["mirror"] = mirror_of(
            spec, site, variables(settings), user=settings.user, account=placement.account
        )
    new = run.model_copy(update=update)
    names_code = any(each.partition("=")[0].strip() == "code" for each in overrides)
    is_same = spec.program == run.spec.program and not names_code
    brings_code = run.code is None and code_folder(run) is None and code_folder(new) is not None
    if is_same and not brings_code:
        return _with_own_code(run, new, settings)
    new, taken, warnings = frozen_code(new, excluded=no_code(run, settings))
    if taken is None and warnings:
        raise InputError(
            warnings[0],
            where=Where(key="--set code"),
            next_action="correct that, or let each attempt read the code: --set code=live",
        )
    state = state_of(new, taken)
    git = {"git_commit": state.commit, "git_dirty": state.is_dirty}
    new = new.model_copy(update={"provenance": run.provenance.model_copy(update=git)})
    return Change(new, state.diff or b"", tuple(warnings))


def _with_own_code(run: Run, new: Run, settings: Settings) -> Change:
    """Return the change to ``new``, whose program and commands are files of the code of ``run``."""
    if run.code is None:
        return Change(new)
    run_dir = RunDir(Path(run.run_dir))
    tree = own_code(run_dir, run, run.code, excluded=no_code(run, settings))
    taken = Taken(tree, Path(run.code.root))
    (code, live), (_, known) = snapshot_of(new, taken), snapshot_of(run, taken)
    hint = "if it was written since the run began, add to this command: --set code=snapshot"
    warnings = (f"{each}; {hint}" for each in live if each not in known)
    return Change(new.model_copy(update={"code": code}), warnings=tuple(warnings))


def extended(run: Run, wanted: Run, run_dir: RunDir, attempt: int, trust: Trust) -> Run:
    """Return ``wanted`` with the newest checkpoint of the completed ``run`` added to its results.

    A process that was killed in :func:`freeze_anew` may have added it already.

    Args:
        wanted: from :func:`changed`.
        attempt: the attempt that completed the run.

    Raises:
        InputError: nothing extends the run, or it has no checkpoint; or the copy of the runtime in
            its run directory would remove the result.
        ScratchError, StorageError: that copy cannot be used.
    """
    run_id = run.run_id
    is_begun = any(each.attempt == attempt for each in run.results)
    is_same = (wanted.spec.params, wanted.spec.args) == (run.spec.params, run.spec.args)
    if is_same and not is_begun:
        raise InputError(
            f"run {run_id} is completed",
            next_action=f"to train it further, change params or args: hpcflow resume {run_id} "
            "--set params.NAME=VALUE; or train it again as a new run: hpcflow run CONFIG",
        )
    newest = newest_complete(run_dir)
    if newest is None:
        raise InputError(
            f"run {run_id} is completed, and has no checkpoint to resume from",
            next_action=f"if it was mirrored: hpcflow restore {run_id}; or train it again as a new "
            "run: hpcflow run CONFIG",
        )
    keeps_all = wanted.spec.checkpoint.keep is None
    if not keeps_all and checked_runtime_sums(run_dir, trust)[0] != installed_sum():
        raise InputError(
            f"the jobs of run {run_id} execute the runtime of another version of hpcflow, which "
            "may remove the checkpoint that the run was completed with",
            next_action="add to this command: --set checkpoint.keep_last=all",
        )
    if is_begun:
        return wanted
    result = Result(attempt=attempt, train_step=int(PurePosixPath(newest).name))
    return wanted.model_copy(update={"results": [*run.results, result]})


def freeze_anew(journal: Journal, change: Change, record: Changed) -> None:
    """Write ``change`` to the frozen files, then journal it; the caller holds the submit lock.

    The order matters: a process that reads the record reads ``run.json`` again.
    """
    run_dir = journal.run_dir
    if change.diff is not None:
        write_durably(run_dir.code / DIFF_FILE, change.diff)
    write_durably(run_dir.run_json, frozen_json(change.run))
    renew_params(run_dir, change.run)
    journal.append(record, begins=True)
