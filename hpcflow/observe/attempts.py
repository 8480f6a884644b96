"""Asking the schedulers about live attempts, and journaling what is new.

However many there are: one squeue for each site, and at most one sacct, for the attempts that the
queue has forgotten. The ledger is not written here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

from hpcflow.clock import Clock
from hpcflow.errors import (
    HpcflowError,
    SchedulerUnavailable,
    StorageError,
    SubmissionInDoubt,
)
from hpcflow.launch.submission import read_claim, settle
from hpcflow.model.events import parse_event
from hpcflow.model.journal import JournalRecord, Observed, Submitted
from hpcflow.model.state import AttemptState
from hpcflow.model.views import AttemptView, RunView
from hpcflow.observe.judge import MISSING, judge
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock

#: sacct is asked from a day before the oldest job that is looked for: clocks differ, and the time
#: of submission is compared exactly afterwards.
_ACCOUNTING_MARGIN = timedelta(days=1)


def observe(
    live: Iterable[tuple[RunView, AttemptView]],
    *,
    connect: Callable[[str], Scheduler],
    clock: Clock,
    warnings: list[str],
) -> list[RunDir]:
    """Journal what the schedulers say about ``live``; the runs about which anything was new.

    Args:
        live: attempts that have not ended, with their runs.
        connect: site name -> scheduler.
        warnings: gets a text for whatever could not be asked; it is asked again the next time.
    """
    by_site: dict[str, list[tuple[RunView, AttemptView]]] = defaultdict(list)
    for run, attempt in live:
        by_site[run.site].append((run, attempt))
    return [
        run_dir
        for site, pairs in by_site.items()
        for run_dir in _observe_site(site, pairs, connect, clock, warnings)
    ]


def _observe_site(
    site: str,
    pairs: list[tuple[RunView, AttemptView]],
    connect: Callable[[str], Scheduler],
    clock: Clock,
    warnings: list[str],
) -> list[RunDir]:
    """The runs of a site about which something new was journaled."""
    changed: list[RunDir] = []
    try:
        scheduler = connect(site)
        changed += _settle(pairs, scheduler, clock, warnings)
        changed += _observe(pairs, scheduler, clock, warnings)
    except HpcflowError as error:
        warnings.append(f"{site}: {error.message}; showing what was known before")
    return changed


def _settle(
    pairs: Iterable[tuple[RunView, AttemptView]],
    scheduler: Scheduler,
    clock: Clock,
    warnings: list[str],
) -> list[RunDir]:
    """Look up the jobs of open intents, unless somebody is submitting them at this moment."""
    open_intents = [run for run, attempt in pairs if attempt.state is AttemptState.INTENDED]
    run_dirs = [RunDir(Path(run.run_dir)) for run in open_intents]
    return [run_dir for run_dir in run_dirs if _settle_one(run_dir, scheduler, clock, warnings)]


def _settle_one(run_dir: RunDir, scheduler: Scheduler, clock: Clock, warnings: list[str]) -> bool:
    """Whether the intent is settled now."""
    try:
        with submit_lock(run_dir, wait_s=0) as lock:
            adopted = settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
            if adopted is not None and run_dir.cancel.exists():
                scheduler.cancel([adopted.job_id])  # the wish was there before the job was known
    except SubmissionInDoubt as doubt:
        warnings.append(doubt.message)
        return False
    except StorageError:
        return False  # its submission is under way right now
    return True


def _observe(
    pairs: list[tuple[RunView, AttemptView]],
    scheduler: Scheduler,
    clock: Clock,
    warnings: list[str],
) -> list[RunDir]:
    sent = [(run, attempt) for run, attempt in pairs if attempt.job_id is not None]
    if not sent:
        return []
    known = _by_id(scheduler.queue([attempt.job_id or "" for _, attempt in sent]))
    forgotten = [pair for pair in sent if _answer(pair[1], known) is None]
    accounting_answered = True
    if forgotten:
        try:
            _ask_accounting(forgotten, scheduler, clock, known)
        except SchedulerUnavailable as error:
            accounting_answered = False
            warnings.append(f"{error.message}; ends may show late")
    changed = []
    for run, attempt in sent:
        job = _answer(attempt, known)
        # Without accounting, only the job's own last word may end what the queue has forgotten.
        if job is None and not accounting_answered and attempt.exit_code is None:
            continue
        if _write(run, attempt, job, clock.now(), warnings):
            changed.append(RunDir(Path(run.run_dir)))
    return changed


def _ask_accounting(
    pairs: list[tuple[RunView, AttemptView]],
    scheduler: Scheduler,
    clock: Clock,
    known: dict[str, list[JobInfo]],
) -> None:
    """Add the ends that accounting knows to ``known``.

    A job that accounting calls running while the queue does not know it is no answer: such records
    are left behind when slurmdbd was down at the end of a job, and stay for ever.
    """
    times = [attempt.submitted_at or run.created_at for run, attempt in pairs]
    since = min(times, default=clock.now()) - _ACCOUNTING_MARGIN
    ids = [attempt.job_id or "" for _, attempt in pairs]
    jobs = scheduler.accounting(ids, since=since)
    for job_id, ended in _by_id(job for job in jobs if job.state is AttemptState.ENDED).items():
        known.setdefault(job_id, []).extend(ended)


def _by_id(jobs: Iterable[JobInfo]) -> dict[str, list[JobInfo]]:
    """Job id -> what is said of jobs that bear it, oldest first."""
    found: dict[str, list[JobInfo]] = defaultdict(list)
    for job in jobs:
        found[job.job_id].append(job)
    return dict(found)


def _answer(attempt: AttemptView, known: dict[str, list[JobInfo]]) -> JobInfo | None:
    """The newest answer about the job of ``attempt``.

    Ids wrap, so the name must agree; or the time of submission, for people rename their jobs.
    """
    return next(
        (
            job
            for job in reversed(known.get(attempt.job_id or "", []))
            if job.job_name.strip() == attempt.job_name.strip()
            or (job.submitted_at is not None and job.submitted_at == attempt.submitted_at)
        ),
        None,
    )


def _write(
    run: RunView, attempt: AttemptView, job: JobInfo | None, now: datetime, warnings: list[str]
) -> bool:
    """Journal what is new about an attempt; whether anything was.

    A run whose files are gone or closed must not keep the others from being seen.
    """
    run_dir = RunDir(Path(run.run_dir))
    try:
        records = _records(run_dir, attempt, job, now)
        for record in records:
            journal.append(run_dir, record)
    except HpcflowError as error:
        warnings.append(error.message)
        return False
    except OSError as error:  # a folder that is closed to us, a scratch that is away
        warnings.append(f"{run_dir.path}: {error.strerror}")
        return False
    return bool(records)


def _records(
    run_dir: RunDir, attempt: AttemptView, job: JobInfo | None, now: datetime
) -> list[JournalRecord]:
    claim = read_claim(run_dir, attempt.attempt)
    if claim is not None and claim != attempt.job_id:
        # Two jobs were sent after all, and the other one has the attempt; ours left at once.
        return [Submitted(at=now, attempt=attempt.attempt, job_id=claim, how="claimed")]
    return judge(
        attempt,
        job,
        cancel_requested=run_dir.cancel.exists(),
        first_notice=_first_notice(run_dir, attempt) if job and job.exit_code else None,
        missing_since=_missing_since(run_dir, attempt) if job is None else None,
        now=now,
    )


def _missing_since(run_dir: RunDir, attempt: AttemptView) -> datetime | None:
    """Since when the newest observations of this attempt say MISSING."""
    since = None
    for record in journal.read(run_dir):
        if isinstance(record, Observed) and record.attempt == attempt.attempt:
            if record.raw_state != MISSING:
                since = None
            elif since is None:
                since = record.at
    return since


def _first_notice(run_dir: RunDir, attempt: AttemptView) -> str | None:
    """The signal of the first notice that the job reported."""
    try:
        lines = run_dir.attempt(attempt.attempt).events.read_bytes().splitlines()
    except OSError:
        return None
    events = (parse_event(line) for line in lines if b'"notice"' in line)
    return next((str(event.get("signal")) for event in events if event), None)
