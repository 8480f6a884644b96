"""What a person does with a run: launch it, resume it, cancel it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import (
    InputError,
    SchedulerError,
    SchedulerUnavailable,
    ScratchError,
    StorageError,
    SubmissionRefused,
    Where,
)
from hpcflow.launch import submission
from hpcflow.launch.plan import (
    Plan,
    connect_scheduler,
    make_plan,
    reference,
    resolve_site,
    template_dirs,
)
from hpcflow.launch.submission import LastAttempt
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import CancelRequested, Resumed, Submitted
from hpcflow.model.state import AttemptState, Cause
from hpcflow.rendering.job import render_job
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.settings import Settings, load_settings
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage import journal
from hpcflow.storage.checkpoints import newest_complete
from hpcflow.storage.files import write_durably
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.rundir import create_run, discard_run, read_run, require_room
from hpcflow.storage.runs import is_gone
from hpcflow.storage.unread import mark_unread

#: sbatch gives up after about two minutes; whoever holds the lock longer is in trouble.
_LOCK_WAIT_S = 180.0


@dataclass(frozen=True)
class Launched:
    """A job that was sent."""

    run_id: str
    attempt: int
    job_id: str
    run_dir: Path
    site: str


def submit(
    config: Path | str,
    *,
    overrides: Sequence[str] = (),
    site: str | None = None,
    settings: Settings | None = None,
) -> Launched:
    """Launch the run that ``config`` describes; the Python API behind ``hpcflow run``.

    The ledger is not touched: the run is found there as soon as anybody looks.

    Args:
        config: path of the run's YAML.
        overrides: as for ``--set``.
        site: name of a site, or path of a site file; recognized from this machine if None.

    Raises:
        hpcflow.errors.HpcflowError: it says what is wrong and what to do next.
    """
    settings = settings or load_settings()
    clock = SystemClock()
    named_in = Where(key="site") if site else settings.site_named_in
    the_site, scheduler = _connect(site or settings.site, named_in, str(settings.home.path))
    plan = make_plan(
        Path(config),
        settings=settings,
        clock=clock,
        site=the_site,
        site_reference=reference(the_site, site or settings.site),
        overrides=overrides,
    )
    return launch(plan, settings=settings, scheduler=scheduler, clock=clock)


@lru_cache(maxsize=16)
def _connect(name: str | None, named_in: Where | None, home: str) -> tuple[Site, Scheduler]:
    """Site and scheduler, once a process: a thousand submissions read the site file once."""
    settings = load_settings({**os.environ, "HPCFLOW_HOME": home})
    site = resolve_site(settings, name, named_in=named_in)
    return site, connect_scheduler(site, settings, SystemClock())


def rehearse(plan: Plan, *, settings: Settings, clock: Clock) -> None:
    """What can be told of :func:`launch` without making or sending anything.

    Raises:
        InputError: there is no sbatch, or no run directory can be made on scratch.
    """
    connect_scheduler(plan.site, settings, clock)
    require_room(plan.run, settings.home)


def launch(plan: Plan, *, settings: Settings, scheduler: Scheduler, clock: Clock) -> Launched:
    """Make the run directory of ``plan`` and send its first attempt.

    Raises:
        InputError: scratch cannot be written; nothing was created.
        SubmissionRefused: the scheduler will never take this; nothing is left behind.
        SchedulerError, StorageError: it could not be sent now; the run is kept, the message says
            how to go on, and ``details`` has its id and directory.
    """
    run = plan.run
    _require_cluster(plan.site, scheduler)
    run_dir = create_run(run, settings.home, code=plan.code)
    try:
        submitted = _send_first(plan, run_dir, settings, scheduler, clock)
    except SubmissionRefused:
        raise
    except (SchedulerError, StorageError) as error:
        kept = f"the run is kept; send it with: hpcflow resume {run.run_id}"
        first = error.next_action if isinstance(error, StorageError) else None
        error.next_action = f"{first}. {kept}" if first else kept
        error.details = {"run_id": run.run_id, "run_dir": str(run_dir.path)}
        raise
    return Launched(run.run_id, submitted.attempt, submitted.job_id, run_dir.path, run.site)


def _send_first(
    plan: Plan, run_dir: RunDir, settings: Settings, scheduler: Scheduler, clock: Clock
) -> Submitted:
    with submit_lock(run_dir, wait_s=_LOCK_WAIT_S) as lock:
        if submission.last_attempt(journal.read(run_dir)).intent is not None:
            raise StorageError(
                f"somebody else has sent {plan.run.run_id} since it was made",
                next_action=f"look: hpcflow show {plan.run.run_id}",
            )
        try:
            return submission.send(
                plan.run,
                run_dir,
                1,
                plan.script,
                scheduler=scheduler,
                clock=clock,
                lock=lock,
                partition=plan.placement.partition,
                resume_from=None,
            )
        except SubmissionRefused as error:
            discard_run(run_dir, settings.home)
            error.where = plan.document.located(error.where)
            raise
        except StorageError as error:
            if submission.last_attempt(journal.read(run_dir)).intent is not None:
                raise
            discard_run(run_dir, settings.home)  # scratch is full, and nothing was intended yet
            raise ScratchError(error.message, next_action=error.next_action) from error


def resume(
    run_dir: RunDir,
    *,
    settings: Settings,
    scheduler: Scheduler,
    site: Site,
    clock: Clock,
    known_attempts: int = 0,
) -> Launched:
    """Send the next attempt of a run whose last one is over, or was never sent.

    An attempt whose submission is in doubt is looked up first; if its job exists, that is the
    attempt, and nothing is sent.

    Args:
        known_attempts: how many the ledger knows; it remembers what a purge took from scratch.

    Raises:
        InputError: the run is completed, or a job of it is still alive.
        StorageError: its journal is gone, and with it what became of its jobs.
        SchedulerError: it could not be sent; try again.
    """
    run = read_run(run_dir)
    _require_cluster(site, scheduler)
    with submit_lock(run_dir, wait_s=_LOCK_WAIT_S) as lock:
        found = submission.settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
        if found is not None:
            if run_dir.cancel.exists():
                _go_on(run_dir, settings, clock)
            return Launched(run.run_id, found.attempt, found.job_id, run_dir.path, run.site)
        last = submission.last_attempt(journal.read(run_dir))
        if last.number == 0 and (known_attempts or _has_executed(run_dir)):
            raise StorageError(
                f"the journal of run {run.run_id} is gone, and with it what became of its jobs",
                next_action="scratch may have been purged; start a new run: hpcflow run CONFIG. "
                f"What is left of this one is in {run_dir.path}",
            )
        if last.is_live:
            raise InputError(
                f"run {run.run_id} is still in the hands of Slurm as job {last.job_id}",
                next_action=f"look: hpcflow show {run.run_id}",
            )
        if last.cause is Cause.COMPLETED:
            raise InputError(
                f"run {run.run_id} is completed; there is nothing to go on with",
                next_action="train it again as a new run: hpcflow run CONFIG",
            )
        if strays := _alive(run.run_id, scheduler):
            raise InputError(
                f"job {strays[0]} of run {run.run_id} is alive, of which its journal knows nothing",
                next_action=f"end it: hpcflow cancel {run.run_id}; or wait for its end",
            )
        placement = place(run.spec, site)
        resume_from = newest_complete(run_dir)
        number = last.next_number
        script = render_job(
            run,
            site,
            placement,
            attempt=number,
            resume_from=resume_from,
            template_dirs=template_dirs(settings),
        )
        _go_on(run_dir, settings, clock)
        submitted = submission.send(
            run,
            run_dir,
            number,
            script,
            scheduler=scheduler,
            clock=clock,
            lock=lock,
            partition=placement.partition,
            resume_from=resume_from,
        )
    return Launched(run.run_id, submitted.attempt, submitted.job_id, run_dir.path, run.site)


def _has_executed(run_dir: RunDir) -> bool:
    """Whether a job has left something in the folder of any attempt; a script alone is no job."""
    folders = map(run_dir.attempt, run_dir.attempt_numbers())
    return any(each.claim.exists() or each.events.exists() or each.log.exists() for each in folders)


def _go_on(run_dir: RunDir, settings: Settings, clock: Clock) -> None:
    """Say that the run is wanted again, and take back what was said before."""
    mark_unread(settings.home, run_dir)
    run_dir.cancel.unlink(missing_ok=True)
    journal.append(run_dir, Resumed(at=clock.now(), by=settings.user))


def _require_cluster(site: Site, scheduler: Scheduler) -> None:
    """Refuse to send to another cluster than the site's: homes and scratch can be common to many.

    Raises:
        InputError: the Slurm of this machine is another cluster's.
    """
    here = scheduler.cluster()
    if here and site.cluster_name and here.lower() != site.cluster_name.lower():
        raise InputError(
            f"site {site.name} is the cluster {site.cluster_name}, and Slurm on this machine is "
            f"that of {here}",
            where=Where(key="--site"),
            next_action=f"log in to {site.cluster_name}, or name this cluster's site: "
            "hpcflow site list",
        )


def _alive(run_id: str, scheduler: Scheduler, by_hand: LastAttempt | None = None) -> list[str]:
    """Ids of the jobs in the queue that are of the run: by their names, for ids are used again.

    Args:
        by_hand: an attempt whose job somebody else named; its id and that name must agree.
    """

    def is_of_run(job: JobInfo) -> bool:
        if (named := parse_job_name(job.job_name)) is not None:
            return named[0] == run_id
        return (
            by_hand is not None
            and by_hand.intent is not None
            and job.job_id == by_hand.job_id
            and job.job_name.strip() == by_hand.intent.job_name.strip()
        )

    return [
        job.job_id
        for job in scheduler.queue()
        if job.state is not AttemptState.ENDED and is_of_run(job)
    ]


def cancel(
    run_dir: RunDir, *, settings: Settings, scheduler: Scheduler, clock: Clock
) -> str | None:
    """Stop a run for good; returns the id of the job that was cancelled, if one was alive.

    Raises:
        StorageError: the wish could not be written.
        SchedulerError: Slurm could not be asked. The wish stands; say it again later.
    """
    wish_to_cancel(run_dir, settings=settings, clock=clock)
    return end_jobs(run_dir, scheduler=scheduler, clock=clock)


def wish_to_cancel(run_dir: RunDir, *, settings: Settings, clock: Clock) -> None:
    """Write down, durably and before Slurm is even looked for, that the run shall stop for good.

    A job of this run that starts later, because its submission was in doubt, sees it and leaves at
    once; whoever looks at the run ends a job that is found. A run whose directory is gone has
    nobody left to read it.

    Raises:
        StorageError: it could not be written.
    """
    mark_unread(settings.home, run_dir)
    if not is_gone(run_dir):
        write_durably(run_dir.cancel, b"")
        journal.append(run_dir, CancelRequested(at=clock.now(), by=settings.user))


def end_jobs(run_dir: RunDir, *, scheduler: Scheduler, clock: Clock) -> str | None:
    """End whatever job of a run is alive; returns the id of one of them.

    Of a run whose directory is gone, only the queue can still tell.

    Raises:
        SchedulerError: Slurm could not be asked.
        StorageError: the run's files cannot be read.
    """
    last: LastAttempt | None = None
    if not is_gone(run_dir):
        with submit_lock(run_dir, wait_s=_LOCK_WAIT_S) as lock:
            submission.settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
            last = submission.last_attempt(journal.read(run_dir))
        other = submission.another_cluster(last.intent, scheduler) if last.intent else None
        if last.is_live and last.intent is not None and other is not None:
            raise SchedulerUnavailable(
                f"job {last.job_id} is on cluster {last.intent.cluster}, and this is {other}",
                next_action=f"say it there: hpcflow cancel {run_dir.path.name}",
            )
    alive = _alive(run_dir.path.name, scheduler, last)
    if not alive:
        return None
    scheduler.cancel(alive)
    return alive[0]
