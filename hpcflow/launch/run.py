"""Create a run from a plan, and submit its first attempt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import (
    BudgetError,
    SchedulerError,
    ScratchError,
    StorageError,
    SubmissionRefused,
    Where,
    in_one_line,
)
from hpcflow.launch import submission
from hpcflow.launch.budgeted import has_budget
from hpcflow.launch.connecting import connect_scheduler, reference, resolve_site
from hpcflow.launch.login_check import check_on_login_node
from hpcflow.launch.plan import Plan, make_plan
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Submitted
from hpcflow.ownership import temporary_folder
from hpcflow.placement.choosing import Chooser
from hpcflow.rendering.templates import keep_compiled
from hpcflow.schedulers.base import Scheduler, SubmitRequest
from hpcflow.schedulers.clusters import require_cluster
from hpcflow.settings import Settings, load_settings
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, submit_lock
from hpcflow.storage.rundir import discard_run, require_room

if TYPE_CHECKING:
    from hpcflow.launch.committing import Commitment


@dataclass(frozen=True)
class Launched:
    """A submitted job."""

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

    Nothing is written to the ledger; the next command that reads it adds the run.

    Args:
        config: path of the run's YAML.
        overrides: as for ``--set``.
        site: name of a site, or path of a site file; recognized from this machine if None.

    Raises:
        hpcflow.errors.HpcflowError: with what is wrong and what to do next.
    """
    settings = settings or load_settings()
    clock = SystemClock()
    named_in = Where(key="site") if site else settings.site_named_in
    the_site, scheduler = _connect(site or settings.site, named_in, str(settings.home.path))
    named = reference(the_site, site or settings.site)
    plan = make_plan(
        Path(config),
        settings=settings,
        clock=clock,
        site=the_site,
        site_reference=named,
        overrides=overrides,
        chooser=_chooser(
            site or settings.site, named_in, str(settings.home.path), int(clock.monotonic() / 60)
        ),
    )
    check_on_login_node(plan, settings, clock)
    return launch(plan, settings=settings, scheduler=scheduler, clock=clock)


@lru_cache(maxsize=16)
def _connect(name: str | None, named_in: Where | None, home: str) -> tuple[Site, Scheduler]:
    """Return site and scheduler, cached: a thousand submissions read the site file once."""
    settings = load_settings({**os.environ, "HPCFLOW_HOME": home})
    site = resolve_site(settings, name, named_in=named_in)
    return site, connect_scheduler(site, settings, SystemClock())


@lru_cache(maxsize=1)
def _chooser(name: str | None, named_in: Where | None, home: str, _minute: int) -> Chooser:
    """Return the chooser for `auto`, cached for a minute, so that accounting is queried once."""
    site, scheduler = _connect(name, named_in, home)
    settings = load_settings({**os.environ, "HPCFLOW_HOME": home})
    return Chooser(
        site, reference(site, name), lambda: scheduler, settings=settings, clock=SystemClock()
    )


def rehearse(plan: Plan, *, settings: Settings, clock: Clock) -> list[str]:
    """Check :func:`launch` without creating or submitting anything; return warnings.

    Raises:
        BudgetError: a hard budget has no room.
        InputError: there is no sbatch, or no run directory can be created on scratch.
        SubmissionRefused: the scheduler would refuse the job.
    """
    scheduler = connect_scheduler(plan.site, settings, clock)
    require_room(plan.run, settings.home, plan.trust)
    if (commitment := _commitment(plan, settings, clock)) is not None:
        commitment.require_room(clock)
    try:
        with temporary_folder() as folder:
            script = Path(folder, "job.sbatch")
            script.write_text(plan.script)
            name = job_name(plan.run.run_id, 1)
            scheduler.predicted_start(SubmitRequest(script, script.parent, name))
    except SubmissionRefused as error:
        error.where = plan.document.located(error.where)
        raise
    except SchedulerError as error:
        return [f"the scheduler did not check the job: {in_one_line(error)}"]
    return []


def launch(plan: Plan, *, settings: Settings, scheduler: Scheduler, clock: Clock) -> Launched:
    """Create the run directory of ``plan`` and submit its first attempt.

    Raises:
        InputError: scratch cannot be written; nothing was created.
        BudgetError: a hard budget has no room; the run is removed.
        SubmissionRefused: the scheduler refuses the job; the run is removed.
        SchedulerError, StorageError: it could not be submitted now; the run is kept, the message
            says how to continue, and ``details`` has its id and directory.
    """
    run = plan.run
    require_cluster(plan.site, scheduler)
    run_dir = plan.create_run(settings.home)
    try:
        submitted = _send_first(plan, run_dir, settings, scheduler, clock)
    except (SubmissionRefused, ScratchError, BudgetError) as error:
        # After the lock is closed, because NFS keeps the folder of an open file. An error here must
        # not hide the first one.
        with suppress(StorageError):
            discard_run(run_dir, settings.home)
        error.where = plan.document.located(error.where)
        raise
    except (SchedulerError, StorageError) as error:
        kept = f"the run is kept; submit it with: hpcflow resume {run.run_id}"
        first = error.next_action if isinstance(error, StorageError) else None
        error.next_action = f"{first}. {kept}" if first else kept
        error.details = {"run_id": run.run_id, "run_dir": str(run_dir.path)}
        raise
    keep_compiled(settings.home.compiled_templates)
    return Launched(run.run_id, submitted.attempt, submitted.job_id, run_dir.path, run.site)


def _commitment(plan: Plan, settings: Settings, clock: Clock) -> Commitment | None:
    if not has_budget(plan.run, plan.site, settings.home):
        return None
    from hpcflow.launch.committing import commitment_of

    return commitment_of(
        plan.run, 1, plan.placement, site=plan.site, home=settings.home, clock=clock
    )


def _send_first(
    plan: Plan, run_dir: RunDir, settings: Settings, scheduler: Scheduler, clock: Clock
) -> Submitted:
    with submit_lock(run_dir, wait_s=LOCK_WAIT_S) as lock:
        journal = Journal(run_dir)
        if journal.history.last.intent is not None:
            raise StorageError(
                f"another process has submitted {plan.run.run_id} since it was created",
                next_action=f"see its state: hpcflow show {plan.run.run_id}",
            )
        try:
            return submission.send(
                plan.run,
                journal,
                1,
                plan.script,
                scheduler=scheduler,
                clock=clock,
                lock=lock,
                placement=plan.placement,
                resume_from=plan.run.begins_from,
                commitment=_commitment(plan, settings, clock),
            )
        except StorageError as error:
            if journal.history.last.intent is not None:
                raise
            # Scratch is full, and the intent is not journaled.
            raise ScratchError(error.message, next_action=error.next_action) from error
