"""Asking the schedulers what became of all live attempts, and writing the answer down.

However many runs there are: one squeue for each site, and at most one sacct, for the attempts that
the queue has forgotten. What is new goes to the runs' journals, and from there into the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hpcflow.clock import Clock
from hpcflow.errors import (
    HpcflowError,
    SchedulerUnavailable,
    StorageError,
    SubmissionInDoubt,
)
from hpcflow.launch.submission import read_claim, settle
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.events import parse_event
from hpcflow.model.journal import Observed, Submitted
from hpcflow.model.state import AttemptState
from hpcflow.model.views import AttemptView, RunView
from hpcflow.observe.judge import MISSING, judge
from hpcflow.projection import catch_up, catch_up_home
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.storage import journal
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.rundir import read_run

#: sacct is asked from a day before the oldest job that is looked for: clocks differ, and the time
#: of submission is compared exactly afterwards.
_ACCOUNTING_MARGIN = timedelta(days=1)


@dataclass
class Refreshed:
    """What a refresh could not do; everything else went into the journals and the ledger."""

    warnings: list[str] = field(default_factory=list)


def refresh(
    ledger: Ledger,
    home: Home,
    *,
    user: str,
    connect: Callable[[str], Scheduler],
    clock: Clock,
) -> Refreshed:
    """Bring the ledger up to what the files and the schedulers say now.

    Args:
        user: only this user's runs are asked about; others' are theirs to watch.
        connect: site name -> scheduler.

    Raises:
        LedgerError: the database does not answer.
    """
    catch_up_home(ledger, home)
    return _refresh_live(ledger, user, connect, clock)


def refresh_without_ledger(
    run_dir: RunDir, *, user: str, connect: Callable[[str], Scheduler], clock: Clock
) -> Refreshed:
    """The same for one run while the ledger is down: its journal learns what became of its job.

    The run is projected into a ledger of its own, which is thrown away: the files have everything.
    """
    with (
        TemporaryDirectory(prefix="hpcflow-") as folder,
        open_ledger(f"sqlite:///{folder}/ledger.sqlite") as ledger,
    ):
        catch_up(ledger, [run_dir])
        return _refresh_live(ledger, user, connect, clock)


def _refresh_live(
    ledger: Ledger, user: str, connect: Callable[[str], Scheduler], clock: Clock
) -> Refreshed:
    result = Refreshed()
    by_site: dict[str, list[tuple[RunView, AttemptView]]] = defaultdict(list)
    for run, attempt in ledger.live_attempts():
        if run.user == user:
            by_site[run.site].append((run, attempt))
    changed = [
        run_dir
        for site, pairs in by_site.items()
        for run_dir in _refresh_site(site, pairs, connect, clock, result)
    ]
    if changed:
        catch_up(ledger, changed)
    return result


def _refresh_site(
    site: str,
    pairs: list[tuple[RunView, AttemptView]],
    connect: Callable[[str], Scheduler],
    clock: Clock,
    result: Refreshed,
) -> list[RunDir]:
    """The runs of a site about which something new was journaled."""
    changed: list[RunDir] = []
    try:
        scheduler = connect(site)
        changed += _settle(pairs, scheduler, clock, result)
        changed += _observe(pairs, scheduler, clock, result)
    except HpcflowError as error:
        result.warnings.append(f"{site}: {error.message}; showing what was known before")
    return changed


def _settle(
    pairs: Iterable[tuple[RunView, AttemptView]],
    scheduler: Scheduler,
    clock: Clock,
    result: Refreshed,
) -> list[RunDir]:
    """Look up the jobs of open intents, unless somebody is submitting them at this moment."""
    open_intents = [run for run, attempt in pairs if attempt.state is AttemptState.INTENDED]
    run_dirs = [RunDir(Path(run.run_dir)) for run in open_intents]
    return [run_dir for run_dir in run_dirs if _settle_one(run_dir, scheduler, clock, result)]


def _settle_one(run_dir: RunDir, scheduler: Scheduler, clock: Clock, result: Refreshed) -> bool:
    """Whether the intent is settled now."""
    try:
        with submit_lock(run_dir, wait_s=0) as lock:
            settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
    except SubmissionInDoubt as doubt:
        result.warnings.append(doubt.message)
        return False
    except StorageError:
        return False  # its submission is under way right now
    return True


def _observe(
    pairs: list[tuple[RunView, AttemptView]],
    scheduler: Scheduler,
    clock: Clock,
    result: Refreshed,
) -> list[RunDir]:
    sent = [(run, attempt) for run, attempt in pairs if attempt.job_id is not None]
    if not sent:
        return []
    known = _by_job(scheduler.queue([attempt.job_id or "" for _, attempt in sent]))
    forgotten = [pair for pair in sent if _job(pair[1]) not in known]
    accounting_answered = True
    if forgotten:
        try:
            known |= _ask_accounting(forgotten, scheduler, clock)
        except SchedulerUnavailable as error:
            accounting_answered = False
            result.warnings.append(f"{error.message}; ends may show late")
    changed = []
    for run, attempt in sent:
        job = known.get(_job(attempt))
        # Without accounting, only the job's own last word may end what the queue has forgotten.
        if job is None and not accounting_answered and attempt.exit_code is None:
            continue
        if _write(run, attempt, job, clock.now()):
            changed.append(RunDir(Path(run.run_dir)))
    return changed


def _ask_accounting(
    pairs: list[tuple[RunView, AttemptView]], scheduler: Scheduler, clock: Clock
) -> dict[tuple[str, str], JobInfo]:
    times = [attempt.submitted_at or run.created_at for run, attempt in pairs]
    since = min(times, default=clock.now()) - _ACCOUNTING_MARGIN
    ids = [attempt.job_id or "" for _, attempt in pairs]
    return _by_job(scheduler.accounting(ids, since=since))


def _job(attempt: AttemptView) -> tuple[str, str]:
    return attempt.job_id or "", attempt.job_name


def _by_job(jobs: Iterable[JobInfo]) -> dict[tuple[str, str], JobInfo]:
    """Job id and name -> the newest answer. By both: ids wrap, and people reuse names."""
    return {(job.job_id, job.job_name): job for job in jobs}


def _write(run: RunView, attempt: AttemptView, job: JobInfo | None, now: datetime) -> bool:
    """Journal what is new about an attempt; whether anything was."""
    run_dir = RunDir(Path(run.run_dir))
    claim = read_claim(run_dir, attempt.attempt)
    if claim is not None and claim != attempt.job_id:
        # Two jobs were sent after all, and the other one has the attempt; ours left at once.
        adopted = Submitted(at=now, attempt=attempt.attempt, job_id=claim, how="claimed")
        journal.append(run_dir, adopted)
        return True
    codes = tuple(read_run(run_dir).spec.retry.resubmit_exit_codes)
    records = judge(
        attempt,
        job,
        resubmit_exit_codes=codes,
        cancel_requested=run_dir.cancel.exists(),
        first_notice=_first_notice(run_dir, attempt) if job and job.exit_code else None,
        missing_since=_missing_since(run_dir, attempt) if job is None else None,
        now=now,
    )
    for record in records:
        journal.append(run_dir, record)
    return bool(records)


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
