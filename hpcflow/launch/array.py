"""Submit the first attempts of many runs as one Slurm array, each exactly once.

The protocol is that of :mod:`hpcflow.launch.submission`, with one sbatch for all runs:

0. the most that each run can cost is committed to its budgets;
1. each run gets its directory and its script; ``intended`` is journaled in each;
2. which task is which run is written durably to the home;
3. sbatch runs, with a lock that it inherits;
4. ``submitted``, with the id of the task, is journaled in each run.

A process that finds an intent without an answer looks up the attempt's job name as usual:
:mod:`hpcflow.schedulers.arrays` finds the task of that name. Each task claims its attempt before it
does anything else.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from hpcflow.budgets.commitments import commit
from hpcflow.clock import Clock
from hpcflow.errors import (
    HpcflowError,
    SchedulerUnavailable,
    StorageError,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionRefused,
)
from hpcflow.launch.committing import Commitment, commitment_of, give_back
from hpcflow.launch.jobs import cancel_requested, discard_unrecorded
from hpcflow.launch.plan import Plan
from hpcflow.launch.submission import CLOCK_SKEW, SENDING_TAKES, never_started
from hpcflow.model.ids import array_name, job_name
from hpcflow.model.journal import Intended, Refused, Submitted
from hpcflow.placement.run_paths import template_dirs
from hpcflow.rendering.job import common_directives, make_integrity_check, render_array
from hpcflow.schedulers.base import Scheduler, SubmitRequest
from hpcflow.settings import Settings
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FOLDER_MODE, make_folders, write_durably
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, HeldLock, submit_lock
from hpcflow.storage.path_check import checked_runtime_sums
from hpcflow.storage.runtime_copy import installed_sum
from hpcflow.storage.sweeps import SweepDir, next_array, write_array

#: Maximum age of the oldest intent when sbatch starts. sbatch can take three minutes; other
#: processes withdraw an intent after ``SENDING_TAKES``.
_MAX_INTENT_AGE: Final = SENDING_TAKES - timedelta(minutes=3) - CLOCK_SKEW


@dataclass(frozen=True)
class SentArray:
    """A submitted array. ``tasks``: run id -> job id of its task."""

    job_id: str
    tasks: dict[str, str]


def are_alike(plans: Sequence[Plan]) -> bool:
    """Return whether these runs have equal sbatch options, so that one array can have them."""
    return common_directives([plan.script for plan in plans]) is not None


def send_array(
    plans: Sequence[Plan],
    sweep_dir: SweepDir,
    *,
    settings: Settings,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
) -> SentArray:
    """Create the runs of ``plans`` and submit them as one array.

    Args:
        plans: alike, and never submitted.
        lock: the lock of the sweep, which sbatch inherits.

    Raises:
        BudgetError: a hard budget has no room for all of them; nothing was created.
        SubmissionRefused, SubmissionDelayed, SchedulerUnavailable: no job exists; journaled in each
            run.
        SubmissionInDoubt: the array may exist; the intents stay open.
        StorageError, ScratchError: a file could not be written; the runs that were created are
            submitted one by one later.
    """
    directives = common_directives([plan.script for plan in plans])
    assert directives is not None
    commitments = _committed(plans, settings, clock)
    try:
        return _send(plans, directives, sweep_dir, settings, scheduler, clock, lock)
    except SubmissionInDoubt:
        raise  # the jobs may exist
    except (SubmissionRefused, SubmissionDelayed, SchedulerUnavailable) as error:
        give_back(commitments, clock, error.message)
        raise


def _committed(plans: Sequence[Plan], settings: Settings, clock: Clock) -> list[Commitment]:
    """Commit the costs of all runs at once: all, or none.

    A later look releases commitments of runs that were not submitted because of a write error.
    """
    found = [
        commitment_of(plan.run, 1, plan.placement, site=plan.site, home=settings.home, clock=clock)
        for plan in plans
    ]
    commit(found[0].folder, [each.pledge for each in found], clock)
    return found


def _send(
    plans: Sequence[Plan],
    directives: Sequence[str],
    sweep_dir: SweepDir,
    settings: Settings,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
) -> SentArray:
    number = next_array(sweep_dir)
    name = array_name(sweep_dir.sweep_id, number)
    run_dirs = [_made(plan, settings) for plan in plans]
    folder = _folder(run_dirs, sweep_dir.sweep_id, number)
    text = render_array(
        name,
        directives,
        folder,
        [plan.script for plan in plans],
        integrity=make_integrity_check(folder, plans[0].trust),
        template_dirs=template_dirs(settings),
        compiled=settings.home.compiled_templates,
    )
    intents = [
        _intend(plan, run_dir, scheduler, clock)
        for plan, run_dir in zip(plans, run_dirs, strict=True)
    ]
    write_array(sweep_dir, number, name, [intent.job_name for intent in intents])
    _link(folder, run_dirs)
    script = folder / "job.sbatch"
    write_durably(script, text)
    if clock.now() - intents[0].at > _MAX_INTENT_AGE:
        raise StorageError(
            f"{sweep_dir.path} or {folder} is too slow: hpcflow did not submit the array",
            next_action="no action needed: hpcflow submits its runs one by one in a few minutes",
        )
    try:
        with lock.lend() as fd:
            ref = scheduler.submit(SubmitRequest(script, folder, name, fd))
    except SubmissionInDoubt:
        raise  # the next look finds each job by its name, or withdraws it
    except (SubmissionRefused, SubmissionDelayed, SchedulerUnavailable) as error:
        # sbatch retries by itself, so an earlier try may have created the array.
        if (job_id := _found(name, intents[0], scheduler, error)) is not None:
            return _submitted(job_id, None, plans, run_dirs, clock, how="found")
        for intent, run_dir in zip(intents, run_dirs, strict=True):
            record = Refused(
                at=clock.now(),
                attempt=intent.attempt,
                reason=error.message,
                retryable=error.retryable,
            )
            Journal(run_dir).append(record)
        raise
    return _submitted(ref.job_id, ref.cluster, plans, run_dirs, clock, how="sbatch")


def _found(name: str, intent: Intended, scheduler: Scheduler, error: HpcflowError) -> str | None:
    """Return the id of an array that exists although sbatch failed; None if certainly none does."""
    if isinstance(error, SchedulerUnavailable):
        return None  # sbatch did not reach Slurm
    try:
        lookup = scheduler.find(name, since=intent.at - CLOCK_SKEW)
    except SchedulerUnavailable as unavailable:
        raise _doubt(name, unavailable.message) from error
    jobs = [job for job in lookup.jobs if not never_started(job)]
    if jobs:
        return jobs[-1].job_id.partition("_")[0]
    if not lookup.is_certain:
        raise _doubt(
            name, "accounting does not answer, and the queue lists no ended jobs"
        ) from error
    return None


def _doubt(name: str, why: str) -> SubmissionInDoubt:
    return SubmissionInDoubt(
        f"array {name} may or may not exist: {why}",
        next_action="nothing was resubmitted; the next round looks for it",
    )


def _submitted(
    job_id: str,
    cluster: str | None,
    plans: Sequence[Plan],
    run_dirs: Sequence[RunDir],
    clock: Clock,
    *,
    how: Literal["sbatch", "found"],
) -> SentArray:
    tasks: dict[str, str] = {}
    for index, (plan, run_dir) in enumerate(zip(plans, run_dirs, strict=True)):
        task = tasks[plan.run.run_id] = f"{job_id}_{index}"
        record = Submitted(at=clock.now(), attempt=1, job_id=task, cluster=cluster, how=how)
        Journal(run_dir).append(record)
    return SentArray(job_id, tasks)


def _made(plan: Plan, settings: Settings) -> RunDir:
    """Return the directory of a run; it exists if an earlier submission was killed or deferred."""
    run_dir = settings.home.run_dir(plan.run.run_dir)
    if not settings.home.scratch_link(plan.run.run_id).is_symlink():
        if run_dir.path.exists():
            discard_unrecorded(run_dir.path)
        return plan.create_run(settings.home)
    if checked_runtime_sums(run_dir, plan.trust)[0] != installed_sum():
        raise StorageError(
            f"{run_dir.runtime} is of another version of hpcflow",
            next_action="hpcflow was updated meanwhile; it submits the run without the array",
        )
    return run_dir


def _intend(plan: Plan, run_dir: RunDir, scheduler: Scheduler, clock: Clock) -> Intended:
    run = plan.run
    with submit_lock(run_dir, wait_s=LOCK_WAIT_S):
        journal = Journal(run_dir)
        is_cancelled = cancel_requested(journal, user=run.user, clock=clock)
        if not journal.history.last.is_unsent or is_cancelled or journal.history.is_held:
            raise StorageError(
                f"another process has submitted, held or cancelled {run.run_id} since it was "
                "created",
                next_action=f"see its state: hpcflow show {run.run_id}",
            )
        attempt = run_dir.attempt(1)
        attempt.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_durably(attempt.script, plan.script)
        intent = Intended(
            at=clock.now(),
            attempt=1,
            job_name=job_name(run.run_id, 1),
            scheduler=scheduler.name,
            partition=plan.placement.partition,
            account=plan.placement.account,
            resume_from=run.begins_from,
            cluster=scheduler.cluster(),
            # sbatch inherits the sweep's lock, not this run's. So a process that settles this
            # intent waits as long as sbatch may try, as for an intent of another host.
            host=f"{socket.gethostname()} (array)",
            mem_mb=plan.placement.mem_mb,
            mirror=run.mirror.url if run.mirror is not None else None,
            standby=run.spec.retry.standby or None,
        )
        journal.append(intent)
    return intent


def _folder(run_dirs: Sequence[RunDir], sweep_id: str, number: int) -> Path:
    """Return the working directory of sbatch: on scratch, because the nodes must see it."""
    return run_dirs[0].path.parents[1] / ".arrays" / sweep_id / f"{number:04d}"


def _link(folder: Path, run_dirs: Sequence[RunDir]) -> None:
    """Create a link to the folder of each attempt, named by the index of its task."""
    with storage_errors("write", folder):
        make_folders(folder)
        for index, run_dir in enumerate(run_dirs):
            link = folder / str(index)
            with suppress(FileNotFoundError):
                link.unlink()
            link.symlink_to(os.path.relpath(run_dir.attempt(1).path, folder))
