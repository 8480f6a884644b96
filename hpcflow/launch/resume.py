"""Submit the next attempt of a run, because the user asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hpcflow.clock import Clock
from hpcflow.documents import Document, Place
from hpcflow.errors import InputError, SpecError
from hpcflow.launch import submission
from hpcflow.launch.change import Change, changed, extended, freeze_anew
from hpcflow.launch.committing import give_back_standby, require_room_instead
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.jobs import alive_jobs, cancel_held_jobs, require_journal
from hpcflow.launch.login_check import check_on_login_node
from hpcflow.launch.next_attempt import NextAttempt
from hpcflow.launch.plan import Plan
from hpcflow.launch.restarts import adopt_restarted
from hpcflow.launch.run import Launched
from hpcflow.launch.standby import continue_with_standby, discard, without_standby
from hpcflow.model.journal import Changed, Resumed, Submitted
from hpcflow.model.run import Run
from hpcflow.model.spec import as_config
from hpcflow.placement.run_paths import trust_on
from hpcflow.schedulers.clusters import require_cluster
from hpcflow.settings import Settings
from hpcflow.sites.placement import next_placement
from hpcflow.sites.schema import Site
from hpcflow.storage.approval import approve
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, submit_lock
from hpcflow.storage.restoring import forget_cancelled
from hpcflow.storage.restoring import is_cancelled as is_kept
from hpcflow.storage.rundir import read_run


def resume(
    context: LaunchContext,
    run_dir: RunDir,
    *,
    known_attempts: int = 0,
    avoid: Sequence[str] = (),
    overrides: Sequence[str] = (),
    warn: Callable[[str], object] = lambda _: None,
) -> Launched:
    """Submit the next attempt of a run whose last one is over, or was never submitted.

    A completed run needs other params or arguments. A submission in doubt is looked up first; if
    its job exists, that is the attempt, and nothing is submitted.

    Args:
        known_attempts: number of attempts in the ledger, which keeps them after a purge.
        overrides: as for ``--set``; they change the run for all later attempts.
        warn: receives warnings about what the job may not find, and which code it reads live.

    Raises:
        SpecError: an override is wrong, or the job will not find something; nothing is changed.
        InputError: the run is completed, and no override extends it or it has no checkpoint; or
            one of its jobs is pending or running.
        BudgetError: a hard budget has no room; nothing is changed.
        StorageError: its journal is missing, so the state of its jobs is unknown.
        SchedulerError: it could not be submitted; try again.
    """
    settings, site = context.settings, context.site
    scheduler, clock = context.scheduler, context.clock
    run = read_run(run_dir)
    require_cluster(site, scheduler)
    change = changed(run, overrides, site=site, settings=settings) if overrides else Change(run)
    wanted = change.run
    with submit_lock(run_dir, wait_s=LOCK_WAIT_S) as lock:
        journal = Journal(run_dir)
        found = submission.settle(journal, scheduler=scheduler, clock=clock, lock=lock)
        if found is not None:
            is_marked = run_dir.cancel.exists() or is_kept(settings.home, run.run_id)
            if is_marked or journal.history.is_cancelled:
                _go_on(journal, settings, clock)
            return _launched(run, run_dir, found)
        require_journal(journal, known_attempts=known_attempts, begins=True)
        before = journal.history
        last = before.last
        if last.is_live:
            raise InputError(
                f"run {run.run_id} is still pending or running in Slurm as job {last.job_id}",
                next_action=f"see its state: hpcflow show {run.run_id}",
            )
        extends = last.number if last.is_completed else None
        is_changed = bool(overrides) or last.is_completed
        if last.is_completed:
            trust = trust_on(site, settings, wanted.spec.resources.account)
            wanted = extended(run, wanted, run_dir, last.number, trust)
            change = replace(change, run=wanted)
        for message in change.warnings:
            warn(message)
        _check_on_login_node(wanted, site, settings, clock, warn)
        queue = scheduler.queue()
        mem_mb = before.own_mem_mb
        if is_changed:  # a standby has the old request
            is_same = wanted.spec.resources.mem_mb == run.spec.resources.mem_mb
            mem_mb = mem_mb if is_same else None
            require_room_instead(context, wanted, journal, mem_mb=mem_mb)
            why = "the run's request was changed"
            waited = discard(journal, scheduler=scheduler, clock=clock, lock=lock, why=why)
        else:
            waited = continue_with_standby(
                journal, scheduler=scheduler, clock=clock, lock=lock, queue=queue, mem_mb=mem_mb
            )
        give_back_standby(context, run, last, journal)
        if waited is not None:
            _go_on(journal, settings, clock)
            return _launched(run, run_dir, waited)
        queue, history = without_standby(before, queue), journal.history
        queue = cancel_held_jobs(run.run_id, scheduler, history, queue)
        if unmatched := alive_jobs(run.run_id, scheduler, history, queue=queue):
            restarted = adopt_restarted(journal, queue, clock)
            if restarted is not None:
                return _launched(run, run_dir, restarted)
            raise InputError(
                f"job {unmatched[0]} of run {run.run_id} is pending or running, but is not in the "
                "run's journal",
                next_action=f"cancel it: hpcflow cancel {run.run_id}; or wait for its end",
            )
        record = Changed(
            at=clock.now(), by=settings.user, overrides=list(overrides), extends=extends
        )
        news = record if is_changed else None
        attempt = NextAttempt(context, wanted, journal, changed=news, mem_mb=mem_mb, avoid=avoid)
        attempt.require_room()  # before anything is changed
        if is_changed:
            mark_dirty(settings.home, run_dir)
            freeze_anew(journal, change, record)
        _go_on(journal, settings, clock)
        return attempt.send(lock)


def _check_on_login_node(
    run: Run, site: Site, settings: Settings, clock: Clock, warn: Callable[[str], object]
) -> None:
    no_file = Document(None, as_config(run.spec), Place(None, None))
    plan = Plan(run, site, next_placement(run, site, None), script="", document=no_file)
    try:
        messages = check_on_login_node(plan, settings, clock)
    except SpecError as error:
        other = f"name another: hpcflow resume {run.run_id} --set KEY=VALUE"
        error.next_action = f"{error.next_action}; or {other}" if error.next_action else other
        raise
    for message in messages:
        warn(message)


def _launched(run: Run, run_dir: RunDir, job: Submitted) -> Launched:
    return Launched(run.run_id, job.attempt, job.job_id, run_dir.path, run.site)


def _go_on(journal: Journal, settings: Settings, clock: Clock) -> None:
    """Record that the run continues, and withdraw a cancel request.

    The file ``cancel``, and a request that the home stores, are removed first. With the record
    alone, the run would be submitted again and again, and each of its jobs would exit at once.
    """
    run_dir = journal.run_dir
    mark_dirty(settings.home, run_dir)
    forget_cancelled(settings.home, journal.run_id)
    approve(run_dir)  # the user has accepted what the run executes
    with storage_errors("remove", run_dir.cancel):
        run_dir.cancel.unlink(missing_ok=True)
    journal.append(Resumed(at=clock.now(), by=settings.user), begins=True)
