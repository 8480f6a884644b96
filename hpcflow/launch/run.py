"""What a person does with a run: launch it, resume it, cancel it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import InputError, SchedulerError, SubmissionRefused
from hpcflow.launch import submission
from hpcflow.launch.plan import (
    Plan,
    connect_scheduler,
    make_plan,
    reference,
    resolve_site,
    template_dirs,
)
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import CancelRequested, Resumed
from hpcflow.model.state import AttemptState, Cause
from hpcflow.rendering.job import render_job
from hpcflow.schedulers.base import Lookup, Scheduler
from hpcflow.settings import Settings, load_settings
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage import journal
from hpcflow.storage.checkpoints import newest_complete
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.rundir import create_run, discard_run, read_run
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
    the_site, scheduler = _connect(site or settings.site, str(settings.home.path))
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
def _connect(name: str | None, home: str) -> tuple[Site, Scheduler]:
    """Site and scheduler, once a process: a thousand submissions read the site file once."""
    settings = load_settings({**os.environ, "HPCFLOW_HOME": home})
    site = resolve_site(settings, name)
    return site, connect_scheduler(site, settings, SystemClock())


def launch(plan: Plan, *, settings: Settings, scheduler: Scheduler, clock: Clock) -> Launched:
    """Make the run directory of ``plan`` and send its first attempt.

    Raises:
        InputError: scratch cannot be written; nothing was created.
        SubmissionRefused: the scheduler will never take this; nothing is left behind.
        SchedulerError: it could not be sent now; the run is kept, and the message says how to go
            on.
    """
    run = plan.run
    run_dir = create_run(run, settings.home, code=plan.code)
    with submit_lock(run_dir, wait_s=_LOCK_WAIT_S) as lock:
        try:
            submitted = submission.send(
                run,
                run_dir,
                1,
                plan.script,
                scheduler=scheduler,
                clock=clock,
                lock=lock,
                partition=plan.placement.partition,
                resume_from=None,
            )
        except SubmissionRefused:
            discard_run(run_dir, settings.home)
            raise
        except SchedulerError as error:
            error.next_action = f"the run is kept; send it with: hpcflow resume {run.run_id}"
            raise
    return Launched(run.run_id, submitted.attempt, submitted.job_id, run_dir.path, run.site)


def resume(
    run_dir: RunDir, *, settings: Settings, scheduler: Scheduler, site: Site, clock: Clock
) -> Launched:
    """Send the next attempt of a run whose last one is over, or was never sent.

    An attempt whose submission is in doubt is looked up first; if its job exists, that is the
    attempt, and nothing is sent.

    Raises:
        InputError: the run is completed, or its job is still alive.
        SchedulerError: it could not be sent; try again.
    """
    run = read_run(run_dir)
    with submit_lock(run_dir, wait_s=_LOCK_WAIT_S) as lock:
        found = submission.settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
        if found is not None:
            return Launched(run.run_id, found.attempt, found.job_id, run_dir.path, run.site)
        last = submission.last_attempt(journal.read(run_dir))
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
        mark_unread(settings.home, run_dir)
        run_dir.cancel.unlink(missing_ok=True)
        journal.append(run_dir, Resumed(at=clock.now(), by=settings.user))
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


def cancel(
    run_dir: RunDir, *, settings: Settings, scheduler: Scheduler, clock: Clock
) -> str | None:
    """Stop a run for good; returns the id of the job that was cancelled, if one was alive.

    The wish is durable before Slurm is asked: a job of this run that starts later, because its
    submission was in doubt, sees it and leaves at once.

    Raises:
        SchedulerError: Slurm could not be asked. The wish stands; say it again later.
    """
    mark_unread(settings.home, run_dir)
    run_dir.cancel.touch(mode=0o600)
    journal.append(run_dir, CancelRequested(at=clock.now(), by=settings.user))
    with submit_lock(run_dir, wait_s=_LOCK_WAIT_S) as lock:
        submission.settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
        last = submission.last_attempt(journal.read(run_dir))
    if last.intent is None:
        return None
    # A job that appeared too late for us to adopt it bears the name too.
    is_ours = parse_job_name(last.intent.job_name) is not None
    found = (
        scheduler.find(last.intent.job_name, since=last.intent.at - timedelta(minutes=10))
        if is_ours
        else Lookup()
    )
    alive = [job.job_id for job in found.jobs if job.state is not AttemptState.ENDED]
    if last.is_live and last.job_id is not None:
        alive = list(dict.fromkeys([last.job_id, *alive]))
    if not alive:
        return None
    scheduler.cancel(alive)
    return alive[0]
