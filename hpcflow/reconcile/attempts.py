"""Query the schedulers about live attempts, and journal what is new.

For any number of attempts, each site gets one squeue and at most two sacct, for what the queue
does not show: by id, and by name for attempts without a known id. The ledger is not written here.
"""

from __future__ import annotations

import random
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from hpcflow.errors import (
    HpcflowError,
    SchedulerUnavailable,
    StorageError,
    SubmissionInDoubt,
    next_step,
)
from hpcflow.history import AttemptHistory, RunHistory
from hpcflow.launch.restarts import adopt_restarted
from hpcflow.launch.standby import follow_standby
from hpcflow.launch.submission import (
    SENDING_TAKES,
    another_cluster,
    is_own_name,
    read_claim,
    settle,
)
from hpcflow.ledger.rows import DueBill
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import Accounted, Intended, Observed, Submitted
from hpcflow.model.state import AttemptState
from hpcflow.model.views import AttemptView, LiveRun
from hpcflow.reconcile.accounting import Accounting
from hpcflow.reconcile.answers import (
    by_job_id,
    is_end,
    is_listed,
    is_older,
    needs_accounting,
    newest_answer,
)
from hpcflow.reconcile.attempt_events import (
    first_notice,
    has_finished,
    last_sign,
    memory_when_killed,
    with_log_digest,
)
from hpcflow.reconcile.attribute_stall import attribute_stall
from hpcflow.reconcile.billing import bill_of_attempt
from hpcflow.reconcile.classify_end import News, classify, is_as_known, observed
from hpcflow.reconcile.context import RefreshContext
from hpcflow.reconcile.launch_failures import launch_failed, may_still_be_told
from hpcflow.reconcile.resized import lives_of
from hpcflow.reconcile.restarts import follow_restarts, may_be_restarted
from hpcflow.reconcile.run_in_pass import Errors, Isolated, JournalBuffer
from hpcflow.reconcile.settling import Settling
from hpcflow.reconcile.unreachable import prepare_end
from hpcflow.schedulers.base import JobInfo, Lookup
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock, submit_lock
from hpcflow.storage.own_runs import is_others
from hpcflow.storage.runs import is_unmounted, linked

_OF_FILES: Final = (StorageError, OSError)
#: Each keeps a lock file open, and the usual limit is 1,024 open files.
_MOST_UNSETTLED: Final = 200


def reconcile_attempts(
    context: RefreshContext,
    live: Iterable[tuple[LiveRun, AttemptView]],
    standbys: Iterable[tuple[str, RunDir]] = (),
    resting: Iterable[str] = (),
    bills: Iterable[DueBill] = (),
    *,
    queue: Callable[[str], Sequence[JobInfo]],
    warnings: list[str],
    open_journal: Callable[[RunDir], Journal] = Journal,
) -> list[RunDir]:
    """Query the schedulers about ``live`` and journal what is new; return the changed runs.

    An action precedes its record: a late job of a cancelled run is cancelled, a claim is sealed, a
    notice is written. If hpcflow is killed in between, or the action fails, the next call does
    both; once the record is durable, no call looks at the attempt again.

    Args:
        live: attempts that have not ended, with their runs.
        standbys: site and directory of each run with a standby that no attempt precedes any more.
        resting: sites whose queue is queried in any case, for restarted jobs.
        bills: ended attempts whose bill is due from accounting.
        queue: site name -> its queue; called once a site.
        warnings: receives what could not be queried; the next call queries it again.
        open_journal: run directory -> its journal, if the caller uses it further.
    """
    by_site: dict[str, list[tuple[LiveRun, AttemptView]]] = defaultdict(list)
    for run, attempt in live:
        by_site[run.site].append((run, attempt))
    standing: dict[str, list[RunDir]] = defaultdict(list)
    for site, run_dir in standbys:
        standing[site].append(run_dir)

    ended: dict[str, list[DueBill]] = defaultdict(list)
    for bill in bills:
        ended[bill.site].append(bill)
    at_rest = set(resting)

    def look(site: str) -> list[RunDir]:
        try:
            return _Watch(context, site, warnings, open_journal).look(
                by_site.get(site, []),
                standing.get(site, []),
                ended.get(site, []),
                lambda: queue(site),
                is_asked=site in at_rest,
            )
        except HpcflowError as error:
            warning = f"{site}: {error.message}; showing the last known state"
            warnings.append(f"{warning}{next_step(error)}")
            return []

    sites = dict.fromkeys([*by_site, *standing, *ended, *at_rest])
    return [run_dir for site in sites for run_dir in look(site)]


@dataclass(frozen=True)
class _Unsettled:
    journal: Journal
    intent: Intended
    lock: HeldLock


@dataclass
class _Watch:
    _context: RefreshContext
    _site: str
    _warnings: list[str]
    _open_journal: Callable[[RunDir], Journal]
    _past: dict[str, list[JobInfo]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        context = self._context
        self._clock, self._home = context.clock, context.settings.home
        self._scheduler = context.connect(self._site)
        self._find_site = partial(context.find_site, self._site)
        self._accounting = Accounting(
            self._scheduler, self._clock, self._home, self._site, self._warnings
        )
        self._settling = Settling(self._find_site, self._home, self._warnings)

    def look(
        self,
        pairs: list[tuple[LiveRun, AttemptView]],
        standing: list[RunDir],
        bills: list[DueBill],
        ask: Callable[[], Sequence[JobInfo]],
        *,
        is_asked: bool,
    ) -> list[RunDir]:
        """Query once, and journal what is new; return the runs with new records.

        Args:
            is_asked: query the queue even without live attempts.
        """
        sent = [(run, attempt) for run, attempt in pairs if attempt.job_id is not None]
        with ExitStack() as locks:
            # Queried under the locks: submissions in progress are skipped, and an absent job was
            # never submitted.
            unsettled = self._lock_open(pairs, locks)
            if not (unsettled or sent or standing or is_asked):
                return self._bill(bills, self._accounting.ask([], [], bills))
            queued = list(ask())
            known, names = by_job_id(queued), {job.job_name for job in queued}
            accounted = self._accounting.ask(
                [
                    pair
                    for pair in sent
                    if needs_accounting(self._home, *pair, newest_answer(pair[1], known))
                ],
                [each.intent for each in unsettled if each.intent.job_name not in names],
                bills,
            )
            changed = [
                each.journal.run_dir
                for each in unsettled
                if self._settle(each, [*accounted, *queued])
            ]
        changed += [each for each in standing if self._write_standby(each, queued)]
        lives = {job_id: lives_of(some) for job_id, some in by_job_id(accounted).items()}
        self._past = by_job_id(
            job for some in lives.values() for job in some if job.source == "accounting"
        )
        for job_id, past in lives.items():
            known[job_id] = [*past, *known.get(job_id, ())]
        changed += self._bill(bills, accounted)
        return changed + self._adopt(sent, queued) + self._journal(sent, known)

    def _lock_open(
        self, pairs: list[tuple[LiveRun, AttemptView]], locks: ExitStack
    ) -> list[_Unsettled]:
        """Return the open intents that no process is submitting, each with its lock."""
        found = []
        opened = {run.run_dir for run, each in pairs if each.state is AttemptState.INTENDED}
        # A random sample, so that no run waits forever.
        for path in random.sample(sorted(opened), min(len(opened), _MOST_UNSETTLED)):
            run_dir = self._home.run_dir(path)
            if is_unmounted(run_dir):
                continue
            with self._apart(run_dir):
                journal = self._open_journal(run_dir)
                intent = journal.history.last.intent
                is_old = intent is not None and self._clock.now() - intent.at > SENDING_TAKES
                lock = locks.enter_context(submit_lock(run_dir, wait_s=0, must_be_free=is_old))
                last = journal.history.last
                if last.is_open and last.intent is not None:
                    found.append(_Unsettled(journal, last.intent, lock))
        return found

    def _apart(self, run_dir: RunDir, *, quiet: Errors = ()) -> Isolated:
        return Isolated(run_dir, self._warnings, quiet)

    def _settle(self, each: _Unsettled, jobs: list[JobInfo]) -> bool:
        own = tuple(job for job in jobs if job.job_name == each.intent.job_name)
        journal = each.journal
        with self._apart(journal.run_dir):
            if is_own_name(journal.run_dir, each.intent) and journal.history.is_cancelled:
                # The request came before the job was known. If the job cannot be cancelled, the
                # intent stays open and is checked again.
                self._cancel(own)
            settle(
                journal,
                scheduler=self._scheduler,
                clock=self._clock,
                lock=each.lock,
                lookup=Lookup(own, self._accounting.answered(each.intent.job_name)),
            )
            return True
        return False

    def _cancel(self, jobs: Iterable[JobInfo]) -> None:
        alive = [job.job_id for job in jobs if job.state is not AttemptState.ENDED]
        if alive:
            self._scheduler.cancel(alive)

    def _bill(self, bills: list[DueBill], accounted: list[JobInfo]) -> list[RunDir]:
        bills = [each for each in bills if self._accounting.answered(each.attempt.job_id)]
        if not bills:
            return []
        by_id: dict[str, list[JobInfo]] = defaultdict(list)
        for job in accounted:  # with the components of heterogeneous jobs
            by_id[job.job_id.partition("+")[0]].append(job)
        by_run: dict[str, list[DueBill]] = defaultdict(list)
        for each in bills:
            by_run[each.run_dir].append(each)
        return [
            run_dir
            for path, some in by_run.items()
            if self._write_bills(run_dir := self._home.run_dir(path), some, by_id)
        ]

    def _write_bills(
        self, run_dir: RunDir, bills: list[DueBill], accounted: dict[str, list[JobInfo]]
    ) -> bool:
        with self._apart(run_dir):
            written = JournalBuffer(self._open_journal(run_dir))
            history = written.journal.history
            for due in bills:
                jobs = accounted.get(due.attempt.job_id or "", [])
                attempt = history.attempt(due.attempt.attempt)
                with self._apart(run_dir):
                    bill = self._bill_of(due, run_dir, attempt, jobs)
                    if bill is not None:
                        # Settled first: if the process is killed in between, both are repeated.
                        self._settling.settle(run_dir, bill, is_own=attempt.is_own)
                        written.add([bill])
            if written.has_news:
                mark_dirty(self._home, run_dir)
            return written.write()
        return False

    def _bill_of(
        self, due: DueBill, run_dir: RunDir, history: AttemptHistory, accounted: list[JobInfo]
    ) -> Accounted | None:
        return bill_of_attempt(
            due, run_dir, history, accounted, self._find_site(), self._clock.now()
        )

    def _adopt(
        self, sent: list[tuple[LiveRun, AttemptView]], queued: list[JobInfo]
    ) -> list[RunDir]:
        """Adopt jobs that were restarted after their attempts had ended, as the next attempts."""
        watched = {attempt.job_id for _, attempt in sent}
        restarted = [
            named[0]
            for job in queued
            if job.restarts and job.state is not AttemptState.ENDED and job.job_id not in watched
            if (named := parse_job_name(job.job_name.strip())) is not None
        ]
        own = [each for each in linked(self._home, restarted) if not is_others(each)]
        return [each for each in own if self._adopt_one(each, queued)]

    def _adopt_one(self, run_dir: RunDir, queued: list[JobInfo]) -> bool:
        # Quiet: the run is being submitted, or its directory is missing or unreadable.
        with self._apart(run_dir, quiet=_OF_FILES), submit_lock(run_dir, wait_s=0):
            mark_dirty(self._home, run_dir)
            return adopt_restarted(self._open_journal(run_dir), queued, self._clock) is not None
        return False

    def _write_standby(self, run_dir: RunDir, queued: list[JobInfo]) -> bool:
        quiet = (*_OF_FILES, SubmissionInDoubt)  # as above, or its claim cannot be sealed now
        with self._apart(run_dir, quiet=quiet), submit_lock(run_dir, wait_s=0) as lock:
            mark_dirty(self._home, run_dir)
            return follow_standby(
                self._open_journal(run_dir),
                queued,
                scheduler=self._scheduler,
                clock=self._clock,
                lock=lock,
            )
        return False

    def _journal(
        self, sent: list[tuple[LiveRun, AttemptView]], known: dict[str, list[JobInfo]]
    ) -> list[RunDir]:
        by_run: dict[str, list[tuple[AttemptView, JobInfo | None]]] = defaultdict(list)
        for run, attempt in sent:
            job = newest_answer(attempt, known)
            if job is not None and job.state is AttemptState.UNKNOWN:
                self._warnings.append(
                    f"{run.run_id}: job {job.job_id} is in state {job.raw_state!r}, which this "
                    "version of hpcflow does not know; waiting"
                )
            if job is None or job.restarts != 0 or not is_as_known(attempt, job):
                by_run[run.run_dir].append((attempt, job))
        return [
            run_dir
            for path, some in by_run.items()
            if self._write(run_dir := self._home.run_dir(path), some)
        ]

    def _write(self, run_dir: RunDir, some: list[tuple[AttemptView, JobInfo | None]]) -> bool:
        written, is_news = JournalBuffer(self._open_journal(run_dir)), False
        newest = max(attempt.attempt for attempt, _ in some)
        for attempt, job in some:
            with self._apart(run_dir):
                is_older = attempt.attempt < newest
                is_news |= self._add(written, attempt, job, is_older=is_older)
        with self._apart(run_dir):
            is_news |= written.write()
        return is_news

    def _add(
        self, written: JournalBuffer, attempt: AttemptView, job: JobInfo | None, *, is_older: bool
    ) -> bool:
        """Add what is new about an attempt. Return whether its job may have been restarted."""
        run_dir = written.journal.run_dir
        now_is = self._follow(written, attempt, job, is_older=is_older)
        # Without accounting, only the job's own exit event may end a job that left the queue.
        is_told = job is not None or self._accounting.answered(attempt.job_id)
        is_told |= attempt.raw_state == "CANCELLED"  # by the queue, before the job left it
        if now_is is not None and (is_told or now_is.exit_code is not None):
            news = self._news(written.journal, now_is, job)
            if news.ended is None or prepare_end(run_dir, news.ended):
                written.add(news.records)
        return now_is is not attempt

    def _follow(
        self, written: JournalBuffer, attempt: AttemptView, job: JobInfo | None, *, is_older: bool
    ) -> AttemptView | None:
        """Return the attempt that the answer is about: ``attempt``, or its job's restart.

        Args:
            is_older: whether the same pass handles a later attempt of the run.
        """
        run_dir = written.journal.run_dir
        # By these names only, because a new job of the run can have the id of an old one.
        names = {each.job_name.strip() for each in (attempt, job) if each is not None}
        past = [
            each
            for each in self._past.get(attempt.job_id or "", ())
            if each.job_name.strip() in names
        ]
        if is_older:  # only the job of the last attempt can begin another attempt
            is_claimed = read_claim(run_dir, attempt.attempt + 1) == attempt.job_id
            is_restarted = len(past) > 1 or (job is not None and bool(job.restarts)) or is_claimed
            return None if is_restarted else attempt
        is_restarted = len(past) > 1 or may_be_restarted(run_dir, attempt, job)
        if is_restarted and launch_failed(run_dir, attempt, job, past) is False:
            written.write()
            journal, certain = written.journal, self._accounting.answered(attempt.job_id)
            return follow_restarts(journal, attempt, job, past, self._clock, is_certain=certain)
        return attempt

    def _news(self, journal: Journal, attempt: AttemptView, job: JobInfo | None) -> News:
        now, run_dir = self._clock.now(), journal.run_dir
        past = self._past.get(attempt.job_id or "", ())
        claim = read_claim(run_dir, attempt.attempt)
        if claim is not None and claim != attempt.job_id:
            # Two jobs were submitted, and the other one has the attempt; this one exited at once.
            return News(Submitted(at=now, attempt=attempt.attempt, job_id=claim, how="claimed"))
        missed: list[Observed] = []
        last_word = None
        history, of_attempt = RunHistory(), AttemptHistory()
        stall, ended = None, None
        has_failed = launch_failed(run_dir, attempt, job, past)
        if job is None or is_end(job):
            history = journal.history
            of_attempt = history.attempt(attempt.attempt)
            if job is not None and is_older(job, of_attempt):
                job = None
            stall, ended = attribute_stall(run_dir, history, attempt, job), of_attempt.seen_ended
            answered = self._accounting.answered(attempt.job_id)
            if (
                (has_failed is None or (job is None and ended is not None))
                and not history.is_cancelled
                and self._find_site().has_accounting
                and may_still_be_told(ended, now, is_answered=answered)
            ):
                # A later tick decides, when accounting says who cancelled the job.
                if job is None or ended:
                    return News()
                # A restarted job has the restart's submission time.
                same = replace(job, submitted_at=attempt.submitted_at)
                return News(observed(attempt.attempt, same, now))
        if job is None:
            self._require_its_cluster(attempt, of_attempt)
            missed = of_attempt.missed
            last_word = last_sign(run_dir, attempt.attempt)
        news = classify(
            attempt,
            job,
            cancel_requested=history.is_cancelled,
            first_notice=(
                first_notice(run_dir, attempt.attempt) if job and job.exit_code else None
            ),
            stall=stall,
            has_finished=(
                (stall is not None or attempt.exit_code == 0)
                and has_finished(run_dir, attempt.attempt)
            ),
            memory_when_killed=(
                memory_when_killed(run_dir, attempt, job) if job is None or is_end(job) else None
            ),
            launch_failed=bool(has_failed),
            seen_ended=ended,
            missed=missed,
            last_sign=last_word,
            host=socket.gethostname(),
            is_listed=is_listed(attempt, past),
            now=now,
        )
        if news.ended is None:
            return news
        return replace(news, ended=with_log_digest(run_dir, news.ended))

    def _require_its_cluster(self, attempt: AttemptView, history: AttemptHistory) -> None:
        """Raise SchedulerUnavailable for a job of another cluster: absence here means nothing."""
        for intent in history.intents:
            if (other := another_cluster(intent, self._scheduler)) is not None:
                raise SchedulerUnavailable(
                    f"job {attempt.job_id} is on cluster {intent.cluster}, but this is {other}: "
                    "its end shows only there"
                )
