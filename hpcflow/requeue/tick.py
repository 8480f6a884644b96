"""One round over all runs: observe, decide, act, and journal why.

It may be killed at any moment and run again at once: a decision is journaled before anything is
done, and each submission is exactly once (:mod:`hpcflow.launch.submission`). It keeps nothing
between two rounds.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from hpcflow.errors import (
    BudgetError,
    InputError,
    LedgerError,
    StorageError,
    SubmissionRefused,
    words_for,
)
from hpcflow.launch.cancel import complete
from hpcflow.launch.jobs import other_cluster
from hpcflow.launch.resubmit import resubmit
from hpcflow.ledger.garbage import no_collection
from hpcflow.ledger.rows import Known
from hpcflow.model import lost_journal
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import Decided
from hpcflow.model.next_action import CANCEL_JOBS
from hpcflow.model.run import Run
from hpcflow.projection import catch_up, end_purged, rebuild, say_purged
from hpcflow.projection.reading import FOLD_ERRORS
from hpcflow.reconcile.refresh import refresh
from hpcflow.requeue.begin_time import lift_begin_times
from hpcflow.requeue.budget_facts import BudgetFacts
from hpcflow.requeue.evidence import read_evidence
from hpcflow.requeue.exclusion import to_avoid
from hpcflow.requeue.exclusion_warnings import warn_of_exclusions
from hpcflow.requeue.facts import facts_of
from hpcflow.requeue.newest_checkpoint import with_progress_on_scratch
from hpcflow.requeue.nodes import Evidence
from hpcflow.requeue.overspent import end_overspent
from hpcflow.requeue.owner_mismatch import warn_of_owner_mismatch
from hpcflow.requeue.policy import Action, Decision, Facts, decide
from hpcflow.requeue.restores import Restores
from hpcflow.requeue.round_context import LeaseLostError, RoundContext
from hpcflow.requeue.run_errors import RunErrors
from hpcflow.requeue.staleness import is_stale, no_submission_in_progress
from hpcflow.requeue.stall_policy import Verdict
from hpcflow.requeue.stalls import look_for_stalls
from hpcflow.requeue.standbys import look_after_standbys
from hpcflow.schedulers.base import JobInfo
from hpcflow.sites.schema import Site
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.journal import Journal, is_lost
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.restoring import is_cancelled
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_gone, is_purged

_log = logging.getLogger(__name__)

_BATCH: Final = 200
#: Rules that stop a run for good because of the time alone.
_BY_CLOCK: Final = frozenset({"forgotten", "deadline"})


@dataclass
class Report:
    """What a tick did.

    Attributes:
        looked_at: runs for which something had to be decided.
        decisions: run id -> what was decided now, and was not decided before, or done.
        sent: run id -> job id, of the attempts that were sent.
        lifted: run id -> job id, of the attempts that Slurm has restarted and that need not wait.
        standbys: run id -> job id, of the standbys that were sent.
        restores: run id -> why, of the runs of which something is being fetched from now on.
        stalls: run id -> what was found about an attempt that shows no progress.
        overspent: run id -> why, of the attempts that are told to leave, for a budget is reached.
        warnings: what could not be asked, for people.
        problems: run id -> what went wrong with it; it is tried again.
        has_lost_lease: whether another process has taken the lease; it does the rest.
    """

    looked_at: int = 0
    decisions: dict[str, Decision] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    lifted: dict[str, str] = field(default_factory=dict)
    standbys: dict[str, str] = field(default_factory=dict)
    restores: dict[str, Decision] = field(default_factory=dict)
    stalls: dict[str, Verdict] = field(default_factory=dict)
    overspent: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    has_lost_lease: bool = False


def tick(around: RoundContext) -> Report:
    """One round.

    Raises:
        LedgerError: the database does not answer; nothing is lost.
    """
    with no_collection():
        return _Round(around).go()


class _Round:
    def __init__(self, around: RoundContext) -> None:
        self._around = around
        self._report = Report()
        self._run_errors = RunErrors()
        self._changed: list[RunDir] = []
        self._queues: dict[str, list[JobInfo]] = {}
        self._by_run: dict[str, _ByRun] = {}
        self._sites: dict[str, Site] = {}
        self._evidence: Evidence | None = None
        self._own = OwnRuns(around.settings.home)
        self._budgets = BudgetFacts(around.settings.home, around.clock)
        self._restores = Restores(around, self._own, self._run_errors, self._site)

    def go(self) -> Report:
        around = self._around
        self._report.warnings = refresh(
            around.ledger,
            around.settings.home,
            user=around.settings.user,
            connect=around.connect,
            find_site=around.find_site,
            clock=around.clock,
            own=self._own,
            queue=around.queues.ask,
        )
        try:
            self._act()
        except LeaseLostError:
            self._report.has_lost_lease = True
        finally:
            self._report.problems.update(self._run_errors.of_runs)
            self._report.restores = self._restores.begun
            said = [*self._report.warnings, *self._own.warnings(), *self._budgets.warnings()]
            self._report.warnings = list(dict.fromkeys(said))
        return self._report

    def _act(self) -> None:
        around = self._around
        with self._apart():
            lifted = lift_begin_times(around, self._own, self._run_errors)
            self._report.lifted = lifted.jobs
            self._report.warnings += lifted.warnings
        with self._apart():
            self._report.warnings += warn_of_exclusions(around, self._own)
        with self._apart():
            self._report.warnings += warn_of_owner_mismatch(around)
        user = around.settings.user
        due = [
            *around.ledger.alive_due(CANCEL_JOBS, user=user),
            *around.ledger.undecided(around.clock.now(), user=user),
        ]
        self._report.looked_at = len(due)
        for begin in range(0, len(due), _BATCH):
            self._batch(due[begin : begin + _BATCH])
        with self._apart():
            self._restores.look_for_purged()
        with self._apart():
            look_after_standbys(
                around,
                self._queue,
                self._to_avoid,
                self._own,
                self._run_errors,
                sent=self._report.standbys,
            )
        with self._apart():
            stalls = look_for_stalls(around, self._queue, self._own, self._run_errors)
            self._report.stalls = stalls.verdicts
            self._report.problems.update(stalls.problems)
            self._report.has_lost_lease = stalls.has_lost_lease
        if self._report.has_lost_lease:
            return
        with self._apart():
            self._report.overspent = end_overspent(around, self._queue, self._own, self._run_errors)

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Turn an error of one task of the round into a warning, so that the other tasks run.

        Raises:
            LedgerError: the database does not answer; nothing can be done without it.
            LeaseLostError: another process has taken the lease.
        """
        try:
            yield
        except (LedgerError, LeaseLostError):
            raise
        except Exception as error:  # a bug in one task must not stop the others either
            _log.debug("a task of the round failed", exc_info=True)
            if (words := words_for(error)) is not None:
                self._report.warnings.append(words)

    def _batch(self, run_ids: Sequence[str]) -> None:
        """Decide about these runs and act."""
        known = self._around.ledger.known(run_ids)
        try:
            for run_id in run_ids:
                if run_id not in known:
                    continue
                run_dir = self._own.dir_of(run_id, known[run_id].run.run_dir)
                if run_dir is not None:
                    with self._run_errors.of(run_id, known[run_id].run.site):
                        self._decide(known[run_id], run_dir)
        finally:
            changed, self._changed = self._changed, []
            catch_up(self._around.ledger, changed)

    def _decide(self, known: Known, run_dir: RunDir) -> None:
        """What becomes of one run now; written down, and done."""
        around = self._around
        if is_gone(run_dir):
            self._say_gone(run_dir)
            return
        journal, run = self._own.journal_of(run_dir), read_run(run_dir)
        site, scheduler = self._site(run.site), around.connect(run.site)
        if other_cluster(site, scheduler):
            return  # it is for a daemon over there
        partition = site.partitions.get(run.partition)
        try:
            facts = facts_of(
                known,
                mem_max_mb=partition.mem_per_node_mb if partition else None,
                is_journal_lost=is_lost(run_dir),
            )
            now, policy = around.clock.now(), run.spec.retry
            facts = with_progress_on_scratch(facts, run_dir, decide, policy, now)
            decision = decide(facts, policy, now)
        except FOLD_ERRORS:  # hpcflow never wrote these rows; the next round decides by the files
            rebuild(around.ledger, [run_dir])
            return
        if decision.action is Action.NONE:
            return
        if decision.rule == lost_journal.RULE:
            if is_cancelled(around.settings.home, run.run_id):
                return
            journal.require()  # raises: no journal is begun to say that it is lost
        if decision.action is Action.RESUBMIT:
            no_room = self._budgets.no_room(run, journal, site, mem_mb=decision.mem_mb)
            facts = replace(facts, over_budget=no_room.short if no_room is not None else None)
            decision = decide(facts, run.spec.retry, around.clock.now())
        if decision.action is Action.RESUBMIT:
            facts = replace(facts, only_mirrored=self._restores.only_mirrored(known, run_dir, run))
            decision = decide(facts, run.spec.retry, around.clock.now())
        if decision.action is Action.STOP and decision.rule in _BY_CLOCK:
            self._queue(run.site)  # Slurm refuses requests from a host whose clock is minutes off
        queue: list[JobInfo] = []
        avoid: list[str] = []
        if decision.action in (Action.RESUBMIT, Action.CANCEL):
            if run.site in self._run_errors.silent_sites:
                return
            queue = self._jobs_of(run)
        if decision.action is Action.RESUBMIT:
            avoid = self._to_avoid(run, site)
            if avoid:
                why = f"{decision.why}; avoiding {', '.join(avoid)}"
                decision = replace(decision, why=why)
        is_free = no_submission_in_progress(known, around.clock.now())
        with submit_lock(run_dir, wait_s=0, must_be_free=is_free) as lock:
            # Only now: a process that was stopped while the others took over stops before it
            # writes.
            around.require_lease()
            self._changed.append(run_dir)
            if is_stale(known, run_dir):
                return
            write_down = partial(self._write_down, journal, facts, known)
            if decision.action is Action.CANCEL:
                before = partial(write_down, decision)
                complete(journal, queue, before=before, scheduler=scheduler, lock=lock)
                return
            write_down(decision)
            if decision.action is not Action.RESUBMIT:
                if decision.action is Action.RESTORE:
                    self._restores.begin(run.run_id, decision)
                return
            try:
                with self._run_errors.of_sending(run):
                    launched = resubmit(
                        journal,
                        run,
                        after=facts.last.number if facts.last else 0,
                        mem_mb=decision.mem_mb,
                        settings=around.settings,
                        scheduler=scheduler,
                        site=site,
                        clock=around.clock,
                        lock=lock,
                        queue=queue,
                        avoid=avoid,
                        has_room=self._run_errors.has_room_for(run),
                    )
            except BudgetError as error:  # somebody was faster
                self._budgets.forget()
                facts = replace(facts, over_budget=error.short)
                refused = decide(facts, run.spec.retry, around.clock.now())
                self._write_down(journal, facts, known, refused, is_second=True)
                return
            except (InputError, SubmissionRefused) as error:
                # The same would be said the next time, and every ten seconds from now on.
                refused = Decision(Action.STOP, "refused", error.message)
                write_down(refused)
                return
        if launched is not None:
            self._budgets.was_sent(run, site)
            self._report.decisions[run.run_id] = decision
            self._report.sent[run.run_id] = launched.job_id

    def _say_gone(self, run_dir: RunDir) -> None:
        """Nothing can be sent from a directory that is gone; from one that is away, not yet."""
        if is_purged(run_dir):
            purged = end_purged(self._around.ledger, [run_dir])
            self._report.warnings += [say_purged(run_id) for run_id in purged]
        else:
            self._report.problems[run_dir.path.name] = (
                f"{run_dir.path.parents[1]} is not there, and with it the run directory"
            )

    def _site(self, name: str) -> Site:
        """The site of that name: read once."""
        if name not in self._sites:
            self._sites[name] = self._around.find_site(name)
        return self._sites[name]

    def _queue(self, site: str) -> list[JobInfo]:
        """What is in the queue of a site: asked once, before the first run is sent there."""
        if site not in self._queues:
            self._queues[site] = self._around.queues.ask(site)
        return self._queues[site]

    def _jobs_of(self, run: Run) -> list[JobInfo]:
        """Those of them that may be of this run."""
        if run.site not in self._by_run:
            self._by_run[run.site] = _ByRun(self._queue(run.site))
        return self._by_run[run.site].of(run.run_id)

    def _to_avoid(self, run: Run, site: Site) -> list[str]:
        """The nodes that the next attempt of ``run`` had better not get; read once in a round.

        This is advice: where it cannot be had, the run is sent without.
        """
        if self._evidence is None:
            try:
                self._evidence = read_evidence(
                    self._around.ledger, self._around.settings.home, self._around.clock.now()
                )
            except (LedgerError, StorageError) as error:
                self._evidence = Evidence()
                self._report.warnings.append(f"{error.message}; no node is avoided for now")
        return to_avoid(self._evidence, run, site)

    def _write_down(
        self,
        journal: Journal,
        facts: Facts,
        known: Known,
        decision: Decision,
        *,
        is_second: bool = False,
    ) -> None:
        """Put the decision into the journal, unless it stands there.

        Args:
            is_second: another one was put there in this round.
        """
        record = Decided(
            at=self._around.clock.now(),
            after=facts.last.number if facts.last else 0,
            action=decision.action.value,
            rule=decision.rule,
            why=decision.why,
            not_before=_not_before(decision, facts),
            mem_mb=decision.mem_mb,
        )
        said = record.model_dump(mode="json", exclude_none=True, exclude={"at", "record"})
        before = known.run.journal.get("decided", {})
        if not is_second and said == {
            name: value for name, value in before.items() if name in said
        }:
            return
        self._report.decisions[facts.run_id] = decision
        mark_dirty(self._around.settings.home, journal.run_dir)
        journal.append(record)


def _not_before(decision: Decision, facts: Facts) -> datetime | None:
    """When it is time; of what is to be sent now, since when, for runs take turns by that."""
    if decision.action is not Action.RESUBMIT:
        return decision.not_before
    return facts.delayed_until or (facts.last.ended_at if facts.last else None)


class _ByRun:
    """The jobs of a queue, by the runs whose names they bear."""

    def __init__(self, jobs: Iterable[JobInfo]) -> None:
        self._named: dict[str | None, list[JobInfo]] = defaultdict(list)
        for job in jobs:
            named = parse_job_name(job.job_name)
            self._named[named[0] if named else None].append(job)

    def of(self, run_id: str) -> list[JobInfo]:
        """Those that may be of a run: they bear its name, or none that hpcflow gave."""
        return [*self._named.get(run_id, ()), *self._named.get(None, ())]
