"""Keep one standby for each run that wants it while an attempt runs, and no other.

:mod:`hpcflow.launch.standby` explains standbys, and why one can be given up at any moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from hpcflow.errors import BudgetError
from hpcflow.history import LastAttempt
from hpcflow.launch import submission
from hpcflow.launch.standby import adopt, end_jobs, give_up, send_standby, write_off
from hpcflow.ledger.rows import Known
from hpcflow.model.next_action import SETTLE_STANDBY, SUBMIT_STANDBY
from hpcflow.model.run import Run
from hpcflow.projection import catch_up
from hpcflow.requeue.facts import decided, is_stale, no_submission_in_progress
from hpcflow.requeue.policy import Action, after_preemption, decide
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.run_errors import RunErrors
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.clusters import other_cluster
from hpcflow.sites.schema import SchedulerKind, Site
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock, submit_lock
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_gone

#: How many standbys a round submits, so that they do not delay resubmissions.
MOST_SENT: Final = 100
_BATCH: Final = 200


def look_after_standbys(
    context: RoundContext,
    queue: Callable[[str], Sequence[JobInfo]],
    to_avoid: Callable[[Run, Site], Sequence[str]],
    own: OwnRuns,
    run_errors: RunErrors,
    *,
    sent: dict[str, str],
) -> None:
    """Submit standbys that are wanted, and end those that no longer are.

    Args:
        queue: site name -> its queue; queried only before a job is cancelled.
        to_avoid: returns the nodes that the next attempt of a run excludes.
        run_errors: receives the errors; sites that did not answer are skipped.
        sent: receives run id -> job id of each submitted standby.

    Raises:
        LeaseLostError: another process has taken the lease.
    """
    _Round(context, queue, to_avoid, own, run_errors, sent).go()


@dataclass(frozen=True)
class _GivenUp:
    """A standby that will execute nothing, and whose job is still to be cancelled."""

    run_dir: RunDir
    number: int
    job_id: str
    why: str


@dataclass
class _Round:
    _context: RoundContext
    _queue: Callable[[str], Sequence[JobInfo]]
    _to_avoid: Callable[[Run, Site], Sequence[str]]
    _own: OwnRuns
    _run_errors: RunErrors
    _sent: dict[str, str]
    _tries: int = 0
    _given_up: dict[str, list[_GivenUp]] = field(default_factory=lambda: defaultdict(list))

    def go(self) -> None:
        self._each(SETTLE_STANDBY, self._give_up)
        for site, doomed in self._given_up.items():
            self._context.require_lease()
            self._end(site, doomed)
        self._each(SUBMIT_STANDBY, self._send)

    def _each(self, action: str, act: Callable[[Known, RunDir], None]) -> None:
        """Call ``act`` for every run whose next action this is; isolate errors."""
        context = self._context
        run_ids = context.ledger.due(action, context.clock.now(), user=context.settings.user)
        for begin in range(0, len(run_ids), _BATCH):
            self._some(run_ids[begin : begin + _BATCH], act)

    def _some(self, run_ids: Sequence[str], act: Callable[[Known, RunDir], None]) -> None:
        known = self._context.ledger.known(run_ids)
        changed = []
        try:
            for run_id in run_ids:
                if run_id not in known:
                    continue
                run_dir = self._own.dir_of(run_id, known[run_id].run.run_dir)
                if run_dir is not None and not is_gone(run_dir):
                    changed.append(run_dir)
                    with self._run_errors.of(run_id, known[run_id].run.site):
                        act(known[run_id], run_dir)
        finally:
            catch_up(self._context.ledger, changed)

    def _is_here(self, site: Site) -> bool:
        return not other_cluster(site, self._context.connect(site.name))

    def _is_silent(self, site: str) -> bool:
        return site in self._run_errors.silent_sites or self._context.queues.is_silent(site)

    def _send(self, known: Known, run_dir: RunDir) -> None:
        context = self._context
        if self._tries >= MOST_SENT or self._is_silent(known.run.site):
            return
        run = read_run(run_dir)
        site = context.find_site(run.site)
        if not self._run_errors.has_room_for(run):
            return
        if site.scheduler is not SchedulerKind.SLURM or not self._is_here(site):
            return
        now = context.clock.now()
        _, decision = decided(known, run, run_dir, site, after_preemption, now)
        if decision.action is not Action.RESUBMIT:
            return
        avoid = self._to_avoid(run, site)
        is_free = no_submission_in_progress(known, context.clock.now())
        sent = None
        with submit_lock(run_dir, wait_s=0, must_be_free=is_free) as lock:
            self._context.require_lease()
            if is_stale(known, run_dir):
                return
            self._tries += 1
            # If a budget has no room for a second attempt, there is no standby; what follows is
            # decided when this attempt has ended.
            with suppress(BudgetError), self._run_errors.of_sending(run):
                sent = send_standby(
                    context.launch_context(site, context.connect(run.site)),
                    self._own.journal_of(run_dir),
                    run,
                    after=max(attempt.attempt for attempt in known.attempts),
                    lock=lock,
                    avoid=avoid,
                )
        if sent is not None:
            self._sent[run.run_id] = sent.job_id

    def _give_up(self, known: Known, run_dir: RunDir) -> None:
        """Prevent the standby from executing anything; if it already does, adopt it as an attempt.

        This needs only a file, so it works even if Slurm does not answer.
        """
        context, run = self._context, read_run(run_dir)
        site = context.find_site(run.site)
        if not self._is_here(site):
            return
        _, decision = decided(known, run, run_dir, site, decide, context.clock.now())
        if decision.action is Action.RESUBMIT:
            return  # the standby is the next attempt
        is_free = no_submission_in_progress(known, context.clock.now())
        with submit_lock(run_dir, wait_s=0, must_be_free=is_free) as lock:
            context.require_lease()
            if is_stale(known, run_dir):
                return
            journal = self._own.journal_of(run_dir)
            last = journal.history.last
            if not last.has_standby:
                return
            if (holder := give_up(run_dir, last)) is not None:
                mark_dirty(context.settings.home, run_dir)
                adopt(journal, holder, context.clock)
                return
            if self._is_silent(run.site):
                return
            standby = self._settled(journal, run.site, lock)
        if standby is not None:
            self._given_up[run.site].append(
                _GivenUp(run_dir, standby.number, standby.job_id or "", decision.why)
            )

    def _settled(self, journal: Journal, site: str, lock: HeldLock) -> LastAttempt | None:
        """Settle whether the standby's job exists; return None if there never was one."""
        last = journal.history.last
        if last.standby is not None and last.standby.is_open:
            mark_dirty(self._context.settings.home, journal.run_dir)
            scheduler, clock = self._context.connect(site), self._context.clock
            submission.settle_standby(journal, scheduler=scheduler, clock=clock, lock=lock)
            last = journal.history.last
        return last.standby if last.has_standby else None

    def _end(self, site: str, doomed: Sequence[_GivenUp]) -> None:
        """Cancel all with one scancel. If it fails, the next round retries."""
        is_told = False
        with self._run_errors.of(doomed[0].run_dir.path.name, site):
            jobs = {each.job_id: (each.run_dir.path.name, each.number) for each in doomed}
            end_jobs(jobs, self._queue(site), self._context.connect(site))
            is_told = True
        for each in doomed if is_told else ():
            with self._run_errors.of(each.run_dir.path.name, site):
                self._write_off(each)
        catch_up(self._context.ledger, [each.run_dir for each in doomed])

    def _write_off(self, each: _GivenUp) -> None:
        with submit_lock(each.run_dir, wait_s=0):
            journal = self._own.journal_of(each.run_dir)
            last = journal.history.last
            if last.standby is not None and last.has_standby:
                if last.standby.number != each.number:
                    return
                mark_dirty(self._context.settings.home, each.run_dir)
                write_off(journal, self._context.clock, each.why)
