"""One round over all runs: refresh, decide, act, and journal why.

It may be killed at any moment and run again at once: a decision is journaled before anything is
done, and each submission is exactly once (:mod:`hpcflow.launch.submission`). It keeps nothing
between two rounds.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from hpcflow.errors import (
    BudgetError,
    InputError,
    LedgerError,
    StorageError,
    SubmissionRefused,
    words_for,
)
from hpcflow.launch.cancel import complete
from hpcflow.launch.resubmit import resubmit
from hpcflow.ledger.rows import Known
from hpcflow.ledger.store import no_collection
from hpcflow.model import lost_journal
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import Decided
from hpcflow.model.next_action import CANCEL_JOBS
from hpcflow.model.run import Run
from hpcflow.projection import catch_up, rebuild
from hpcflow.projection.gone import is_of_another_cluster
from hpcflow.projection.reading import FOLD_ERRORS
from hpcflow.reconcile.refresh import refresh
from hpcflow.requeue.begin_time import lift_begin_times
from hpcflow.requeue.budget_facts import BudgetFacts
from hpcflow.requeue.exclusion import to_avoid
from hpcflow.requeue.facts import decided, is_stale, no_submission_in_progress
from hpcflow.requeue.nodes import Evidence, read_evidence
from hpcflow.requeue.overspent import end_overspent
from hpcflow.requeue.policy import Action, Decision, Facts, decide
from hpcflow.requeue.restores import Restores
from hpcflow.requeue.round_context import LeaseLostError, RoundContext
from hpcflow.requeue.round_warnings import warn_of_exclusions, warn_of_owner_mismatch
from hpcflow.requeue.run_errors import RunErrors
from hpcflow.requeue.stalls.checking import look_for_stalls
from hpcflow.requeue.stalls.policy import Verdict
from hpcflow.requeue.standbys import look_after_standbys
from hpcflow.restore.local import has_whole_record
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.schedulers.clusters import other_cluster
from hpcflow.sites.schema import Site
from hpcflow.sites.slurm_conf import configured_name
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.journal import Journal, is_lost
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock, submit_lock
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.restoring import is_cancelled
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_purged, is_unmounted

# The modules that render scripts are slow to import, and most rounds submit nothing.
if TYPE_CHECKING:
    from hpcflow.launch.run import Launched

_log = logging.getLogger(__name__)

_BATCH: Final = 200
#: Rules that stop a run for good because of the time alone.
_BY_CLOCK: Final = frozenset({"forgotten", "deadline"})


@dataclass
class Report:
    """The result of a tick.

    Attributes:
        looked_at: number of runs that needed a decision.
        decisions: run id -> decision; only new ones and those carried out.
        sent: run id -> job id of the submitted attempts.
        lifted: run id -> job id of the attempts that Slurm has restarted and that start at once.
        standbys: run id -> job id of the submitted standbys.
        restores: run id -> decision, for each restore that was started.
        stalls: run id -> new verdict on an attempt without progress.
        overspent: run id -> reason, for each attempt that got the notice because of a budget.
        warnings: what the tick could not check.
        problems: run id -> error; the next tick tries again.
        has_lost_lease: whether another process took the lease and does the rest.
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


@dataclass
class _Case:
    """The facts and the decision of one run in a round; ``queue`` is read only if needed."""

    known: Known
    journal: Journal
    run: Run
    site: Site
    scheduler: Scheduler
    facts: Facts
    decision: Decision
    queue: list[JobInfo] = field(default_factory=list)
    avoid: list[str] = field(default_factory=list)


def tick(context: RoundContext) -> Report:
    """Run one round.

    Raises:
        LedgerError: the database does not answer; nothing is lost.
    """
    with no_collection():
        return _Round(context).go()


class _Round:
    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self._report = Report()
        self._run_errors = RunErrors()
        self._changed: list[RunDir] = []
        self._purged: set[str] = set()
        self._queue: Callable[[str], list[JobInfo]] = cache(context.queues.ask)
        self._by_run: dict[str, _ByRun] = {}
        self._site: Callable[[str], Site] = cache(context.find_site)
        self._evidence: Evidence | None = None
        self._own = OwnRuns(context.settings.home)
        self._budgets = BudgetFacts(context.settings.home, context.clock)
        self._restores = Restores(context, self._own, self._run_errors, self._site)

    def go(self) -> Report:
        context = self._context
        self._report.warnings = refresh(
            context, own=self._own, queue=context.queues.ask, purged=self._purged
        )
        try:
            self._act()
        except LeaseLostError:
            self._report.has_lost_lease = True
        finally:
            self._report.problems.update(self._run_errors.of_runs)
            self._report.restores = self._restores.begun
            warnings = [*self._report.warnings, *self._own.warnings(), *self._budgets.warnings()]
            self._report.warnings = list(dict.fromkeys(warnings))
        return self._report

    def _act(self) -> None:
        context = self._context
        with self._apart():
            lifted = lift_begin_times(context, self._own, self._run_errors)
            self._report.lifted = lifted.jobs
            self._report.warnings += lifted.warnings
        with self._apart():
            self._report.warnings += warn_of_exclusions(context, self._own)
        with self._apart():
            self._report.warnings += warn_of_owner_mismatch(context)
        user = context.settings.user
        due = [
            *context.ledger.alive_due(CANCEL_JOBS, user=user),
            *context.ledger.undecided(context.clock.now(), user=user),
        ]
        self._report.looked_at = len(due)
        for begin in range(0, len(due), _BATCH):
            self._batch(due[begin : begin + _BATCH])
        with self._apart():
            self._restores.restore_for_jobs(self._purged)
        with self._apart():
            look_after_standbys(
                context,
                self._queue,
                self._to_avoid,
                self._own,
                self._run_errors,
                sent=self._report.standbys,
            )
        with self._apart():
            stalls = look_for_stalls(context, self._queue, self._own, self._run_errors)
            self._report.stalls = stalls.verdicts
            self._report.problems.update(
                (name, text) for name, text in stalls.problems.items() if name not in self._purged
            )
            self._report.has_lost_lease = stalls.has_lost_lease
        if self._report.has_lost_lease:
            return
        with self._apart():
            self._report.overspent = end_overspent(
                context, self._queue, self._own, self._run_errors
            )

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Turn an error of one task of the round into a warning, so that the other tasks run."""
        try:
            yield
        except (LedgerError, LeaseLostError):
            raise
        except Exception as error:  # a bug in one task must not stop the others either
            _log.debug("a task of the round failed", exc_info=True)
            if (words := words_for(error)) is not None:
                self._report.warnings.append(words)

    def _batch(self, run_ids: Sequence[str]) -> None:
        known = self._context.ledger.known(run_ids)
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
            catch_up(self._context.ledger, changed)

    def _decide(self, known: Known, run_dir: RunDir) -> None:
        context = self._context
        if is_unmounted(run_dir):
            self._report.problems[run_dir.path.name] = (
                f"{run_dir.path.parents[1]} is missing, and so is the run directory"
            )
            return
        is_without_files = is_purged(run_dir)
        if is_without_files and is_of_another_cluster(known, configured_name()):
            return  # it may be there
        has_record = not is_without_files or has_whole_record(run_dir)
        if not has_record and self._restores.restore_purged(known, run_dir):
            return
        case = self._case(known, run_dir, is_purged=is_without_files)
        if case is None or not self._is_to_be_acted_on(case):
            return
        is_free = no_submission_in_progress(known, context.clock.now())
        with submit_lock(run_dir, wait_s=0, must_be_free=is_free) as lock:
            # Under the lock: a process that was suspended and lost the lease must not write.
            context.require_lease()
            self._changed.append(run_dir)
            if is_stale(known, run_dir):
                return
            launched = self._act_on(case, lock)
        if launched is not None:
            self._budgets.was_sent(case.run, case.site)
            self._report.decisions[case.run.run_id] = case.decision
            self._report.sent[case.run.run_id] = launched.job_id

    def _case(self, known: Known, run_dir: RunDir, *, is_purged: bool) -> _Case | None:
        """Return facts and decision; None for a run of another cluster, or with damaged rows."""
        context = self._context
        run = read_run(run_dir)
        site, scheduler = self._site(run.site), context.connect(run.site)
        if other_cluster(site, scheduler):
            return None
        now = context.clock.now()
        try:
            facts, decision = decided(
                known,
                run,
                run_dir,
                site,
                decide,
                now,
                is_journal_lost=is_lost(run_dir),
                is_purged=is_purged,
            )
        except FOLD_ERRORS:  # damaged rows: the next round decides from rebuilt ones
            rebuild(context.ledger, [run_dir])
            return None
        journal = self._own.journal_of(run_dir)
        return _Case(known, journal, run, site, scheduler, facts, decision)

    def _is_to_be_acted_on(self, case: _Case) -> bool:
        """Return whether to act now; this reads the facts that are expensive to get."""
        run, home = case.run, self._context.settings.home
        if case.decision.action is Action.NONE:
            return False
        if case.decision.rule == lost_journal.RULE:
            if is_cancelled(home, run.run_id):
                return False
            case.journal.require()  # raises, so that no new journal is started for this record
        if case.decision.action is Action.RESUBMIT:
            mem_mb = case.decision.mem_mb
            no_room = self._budgets.no_room(run, case.journal, case.site, mem_mb=mem_mb)
            self._decide_again(case, over_budget=no_room.short if no_room is not None else None)
        if case.decision.action is Action.RESUBMIT:
            only_mirrored = self._restores.only_mirrored(case.known, case.journal.run_dir, run)
            self._decide_again(case, only_mirrored=only_mirrored)
        if case.decision.action is Action.STOP and case.decision.rule in _BY_CLOCK:
            self._queue(run.site)  # Slurm refuses requests from a host whose clock is minutes off
        if case.decision.action in (Action.RESUBMIT, Action.CANCEL):
            if run.site in self._run_errors.silent_sites:
                return False
            case.queue = self._jobs_of(run)
        if case.decision.action is Action.RESUBMIT:
            case.avoid = self._to_avoid(run, case.site)
            if case.avoid:
                why = f"{case.decision.why}; excluding {', '.join(case.avoid)}"
                case.decision = replace(case.decision, why=why)
        return True

    def _decide_again(self, case: _Case, **facts: Any) -> None:
        case.facts = replace(case.facts, **facts)
        case.decision = decide(case.facts, case.run.spec.retry, self._context.clock.now())

    def _act_on(self, case: _Case, lock: HeldLock) -> Launched | None:
        """Journal the decision and act on it; return the attempt that was submitted."""
        if case.decision.action is Action.CANCEL:
            before = partial(self._write_down, case)
            complete(case.journal, case.queue, before=before, scheduler=case.scheduler, lock=lock)
            return None
        self._write_down(case)
        if case.decision.action is Action.RESTORE:
            self._restores.begin(case.run.run_id, case.decision)
        if case.decision.action is not Action.RESUBMIT:
            return None
        try:
            with self._run_errors.of_sending(case.run):
                return resubmit(
                    self._context.launch_context(case.site, case.scheduler),
                    case.journal,
                    case.run,
                    after=case.facts.last.number if case.facts.last else 0,
                    mem_mb=case.decision.mem_mb,
                    lock=lock,
                    queue=case.queue,
                    avoid=case.avoid,
                    has_room=self._run_errors.has_room_for(case.run),
                )
        except BudgetError as error:  # another process was faster
            self._budgets.forget()
            self._decide_again(case, over_budget=error.short)
            self._write_down(case, is_second=True)
        except (InputError, SubmissionRefused) as error:
            # Each later round would fail the same way, every ten seconds.
            case.decision = Decision(Action.STOP, "refused", error.message)
            self._write_down(case)
        return None

    def _jobs_of(self, run: Run) -> list[JobInfo]:
        if run.site not in self._by_run:
            self._by_run[run.site] = _ByRun(self._queue(run.site))
        return self._by_run[run.site].of(run.run_id)

    def _to_avoid(self, run: Run, site: Site) -> list[str]:
        """Return the nodes that the next attempt of ``run`` excludes; none without evidence."""
        if self._evidence is None:
            try:
                self._evidence = read_evidence(
                    self._context.ledger, self._context.settings.home, self._context.clock.now()
                )
            except (LedgerError, StorageError) as error:
                self._evidence = Evidence()
                self._report.warnings.append(f"{error.message}; no node is excluded for now")
        return to_avoid(self._evidence, run, site)

    def _write_down(self, case: _Case, *, is_second: bool = False) -> None:
        """Journal the decision, unless the journal already has the same one.

        Args:
            is_second: another decision was journaled in this round.
        """
        facts, decision = case.facts, case.decision
        record = Decided(
            at=self._context.clock.now(),
            after=facts.last.number if facts.last else 0,
            action=decision.action.value,
            rule=decision.rule,
            why=decision.why,
            not_before=_not_before(decision, facts),
            mem_mb=decision.mem_mb,
        )
        values = record.model_dump(mode="json", exclude_none=True, exclude={"at", "record"})
        before = case.known.run.journal.get("decided", {})
        if not is_second and values == {
            name: value for name, value in before.items() if name in values
        }:
            return
        self._report.decisions[facts.run_id] = decision
        mark_dirty(self._context.settings.home, case.journal.run_dir)
        case.journal.append(record)


def _not_before(decision: Decision, facts: Facts) -> datetime | None:
    """Return when to decide again; for a resubmission, since when it is due: this orders runs."""
    if decision.action is not Action.RESUBMIT:
        return decision.not_before
    return facts.delayed_until or (facts.last.ended_at if facts.last else None)


class _ByRun:
    def __init__(self, jobs: Iterable[JobInfo]) -> None:
        self._named: dict[str | None, list[JobInfo]] = defaultdict(list)
        for job in jobs:
            named = parse_job_name(job.job_name)
            self._named[named[0] if named else None].append(job)

    def of(self, run_id: str) -> list[JobInfo]:
        """Return the jobs with the run's name, and those whose name is not from hpcflow."""
        return [*self._named.get(run_id, ()), *self._named.get(None, ())]
