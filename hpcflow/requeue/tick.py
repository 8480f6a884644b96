"""One round over all runs: look, decide, act, and put down why.

It may be killed at any moment and run again at once: what was decided is in the journal before
anything is done, and doing it is exactly once by itself (:mod:`hpcflow.launch.submission`). It
holds nothing between two rounds.
"""

from __future__ import annotations

import gc
import logging
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import (
    HpcflowError,
    InputError,
    LedgerError,
    SchedulerUnavailable,
    StorageError,
    SubmissionRefused,
)
from hpcflow.launch.jobs import other_cluster
from hpcflow.launch.resubmit import resubmit
from hpcflow.ledger.rows import AttemptRow, Known
from hpcflow.ledger.store import Ledger
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import BeginLifted, Decided
from hpcflow.model.run import Run
from hpcflow.observe.refresh import refresh
from hpcflow.projection import catch_up, end_purged, say_purged
from hpcflow.requeue.begin import REASON, to_be_lifted
from hpcflow.requeue.behind import is_behind
from hpcflow.requeue.evidence import read_evidence
from hpcflow.requeue.exclusion import to_avoid
from hpcflow.requeue.facts import facts_of
from hpcflow.requeue.kept_out import kept_out
from hpcflow.requeue.nodes import Evidence
from hpcflow.requeue.patience import Verdict
from hpcflow.requeue.policy import Action, Decision, Facts, decide
from hpcflow.requeue.stalls import look_for_stalls
from hpcflow.requeue.standbys import look_after_standbys
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_gone, is_purged
from hpcflow.storage.unread import mark_unread

_BATCH: Final = 200
_log = logging.getLogger(__name__)


@dataclass
class Report:
    """What a tick did.

    Attributes:
        looked_at: runs for which something had to be decided.
        decisions: run id -> what was decided now, and was not decided before, or done.
        sent: run id -> job id, of the attempts that were sent.
        lifted: run id -> job id, of the attempts that Slurm has restarted and that need not wait.
        standbys: run id -> job id, of the standbys that were sent.
        stalls: run id -> what was found about an attempt that shows no progress.
        warnings: what could not be asked, for people.
        problems: run id -> what went wrong with it; it is tried again.
        is_ousted: whether another process has taken the lease meanwhile; the rest is left to it.
    """

    looked_at: int = 0
    decisions: dict[str, Decision] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    lifted: dict[str, str] = field(default_factory=dict)
    standbys: dict[str, str] = field(default_factory=dict)
    stalls: dict[str, Verdict] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    is_ousted: bool = False


@dataclass(frozen=True)
class Surroundings:
    """Everything that a tick works with.

    Attributes:
        connect: site name -> scheduler.
        find_site: site name -> site.
        may_act: asked before every act, under the lock of its run: whether this process still holds
            the lease, and is not told to end.
        host: whose clock it is.
    """

    ledger: Ledger
    settings: Settings
    clock: Clock
    connect: Callable[[str], Scheduler]
    find_site: Callable[[str], Site]
    may_act: Callable[[], bool] = lambda: True
    host: str = field(default_factory=socket.gethostname)


def tick(around: Surroundings) -> Report:
    """One round.

    Raises:
        LedgerError: the database does not answer; nothing is lost.
    """
    with _no_collection():
        return _Round(around).go()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Rows and jobs by the ten thousand hold no cycles, and looking for some in them, again and
    again as they grow in number, takes a quarter of a round."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _OustedError(Exception):
    """This process may not act any more."""


class _Round:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._report = Report()
        self._silent_sites: set[str] = set()
        self._queues: dict[str, list[JobInfo]] = {}
        self._by_run: dict[str, _ByRun] = {}
        self._sites: dict[str, Site] = {}
        self._evidence: Evidence | None = None
        self._own = OwnRuns(around.settings.home)

    def go(self) -> Report:
        around = self._around
        self._report.warnings = refresh(
            around.ledger,
            around.settings.home,
            user=around.settings.user,
            connect=around.connect,
            clock=around.clock,
            own=self._own,
        )
        try:
            self._act()
        finally:
            self._report.warnings += self._own.warnings()
        return self._report

    def _act(self) -> None:
        around = self._around
        self._lift_begin_times()
        self._say_who_is_kept_out()
        due = around.ledger.undecided(around.clock.now(), user=around.settings.user)
        self._report.looked_at = len(due)
        for begin in range(0, len(due), _BATCH):
            if not self._batch(due[begin : begin + _BATCH]):
                self._report.is_ousted = True
                return
        standbys = look_after_standbys(around, self._to_avoid, self._own)
        self._report.standbys = standbys.sent
        self._report.problems.update(standbys.problems)
        if standbys.is_ousted:
            self._report.is_ousted = True
            return
        stalls = look_for_stalls(around, self._queue, self._own, self._silent_sites)
        self._report.stalls = stalls.verdicts
        self._report.problems.update(stalls.problems)
        self._report.is_ousted = stalls.is_ousted

    def _lift_begin_times(self) -> None:
        """Let the jobs that Slurm has restarted start now. Killed on the way, it is done again."""
        ledger, clock = self._around.ledger, self._around.clock
        run_ids = ledger.waiting_for(REASON, user=self._around.settings.user)
        by_site: dict[str, list[AttemptRow]] = {}
        known = ledger.known(run_ids) if run_ids else {}
        for each in known.values():
            if self._dir_of(each) is None:
                continue
            if (attempt := to_be_lifted(each, clock.now())) is not None:
                by_site.setdefault(each.run.site, []).append(attempt)
        for site, attempts in by_site.items():
            if not self._around.may_act():
                return
            try:
                scheduler = self._around.connect(site)
                if other_cluster(self._around.find_site(site), scheduler):
                    continue
                refused = scheduler.start_now([row.job_id or "" for row in attempts])
            except LedgerError:
                raise
            except HpcflowError as error:
                self._report.warnings.append(f"{site}: {error.message}")
                continue
            run_dirs = [RunDir(Path(known[row.run_id].run.run_dir)) for row in attempts]
            for row, run_dir in zip(attempts, run_dirs, strict=True):
                self._lifted(row, run_dir, refused.get(row.job_id or ""))
            catch_up(ledger, run_dirs)

    def _say_who_is_kept_out(self) -> None:
        """Whoever waits for nodes that it was told to keep away from: its owner may change that."""
        ledger = self._around.ledger
        run_ids = ledger.kept_out(user=self._around.settings.user)
        for each in (ledger.known(run_ids) if run_ids else {}).values():
            if self._dir_of(each) is not None and (said := kept_out(each)) is not None:
                self._report.warnings.append(said)

    def _lifted(self, attempt: AttemptRow, run_dir: RunDir, refused: str | None) -> None:
        record = BeginLifted(
            at=self._around.clock.now(),
            attempt=attempt.attempt,
            job_id=attempt.job_id or "",
            refused=refused,
        )
        try:
            journal.append(run_dir, record)
        except StorageError as error:
            self._report.problems[attempt.run_id] = error.message
        if refused is None:
            self._report.lifted[attempt.run_id] = record.job_id
        else:
            self._report.warnings.append(
                f"{attempt.run_id}: job {record.job_id} was restarted and waits two minutes, for "
                f"its begin time may not be changed: {refused}"
            )

    def _batch(self, run_ids: Sequence[str]) -> bool:
        """Whether this process may go on."""
        known = self._around.ledger.known(run_ids)
        changed = []
        try:
            for run_id in run_ids:
                if run_id not in known or self._dir_of(known[run_id]) is None:
                    continue
                if self._one(known[run_id]):
                    changed.append(RunDir(Path(known[run_id].run.run_dir)))
        except _OustedError:
            return False
        finally:
            catch_up(self._around.ledger, changed)
        return True

    def _dir_of(self, known: Known) -> RunDir | None:
        """Where a run of our own is; None for what only says that it is ours."""
        return self._own.dir_of(known.run.run_id, known.run.run_dir)

    def _one(self, known: Known) -> bool:
        """Decide about one run and act; whether its journal may have grown."""
        run_id = known.run.run_id
        if known.run.site in self._silent_sites:
            return False
        try:
            return self._decide(known)
        except (LedgerError, _OustedError):
            raise
        except SchedulerUnavailable as error:
            # Whoever is silent now will be silent to the next run, too, after as long a wait.
            self._silent_sites.add(known.run.site)
            self._report.problems[run_id] = error.message
        except HpcflowError as error:
            self._report.problems[run_id] = error.message
        except Exception as error:  # a bug, or files that nobody foresaw: it ends no other run
            _log.debug("run %s", run_id, exc_info=True)
            self._report.problems[run_id] = f"{type(error).__name__}: {error}"
        return True

    def _decide(self, known: Known) -> bool:
        around, run_dir = self._around, RunDir(Path(known.run.run_dir))
        if is_gone(run_dir):
            self._say_gone(run_dir)
            return False
        run = read_run(run_dir)
        site, scheduler = self._site(run.site), around.connect(run.site)
        if other_cluster(site, scheduler):
            return False  # it is for a daemon over there
        partition = site.partitions.get(run.partition)
        facts = facts_of(known, mem_max_mb=partition.mem_per_node_mb if partition else None)
        decision = decide(facts, run.spec.retry, around.clock.now())
        if decision.action is Action.NONE:
            return False
        queue: list[JobInfo] = []
        avoid: list[str] = []
        if decision.action is Action.RESUBMIT:
            queue = self._jobs_of(run)
            avoid = self._to_avoid(run, site)
            if avoid:
                why = f"{decision.why}; avoiding {', '.join(avoid)}"
                decision = replace(decision, why=why)
        with ExitStack() as stack:
            try:
                lock = stack.enter_context(submit_lock(run_dir, wait_s=0))
            except StorageError as error:
                if error.retryable:  # somebody else is submitting it right now
                    return False
                raise
            # Only now: whoever was stopped while the others took over stops before it writes.
            if not around.may_act():
                raise _OustedError
            if is_behind(known, run_dir):
                return True
            is_new = self._write_down(run_dir, facts, known, decision)
            if decision.action is not Action.RESUBMIT:
                return is_new
            try:
                launched = resubmit(
                    run_dir,
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
                )
            except (InputError, SubmissionRefused) as error:
                # The same would be said the next time, and every ten seconds from now on.
                refused = Decision(Action.STOP, "refused", error.message)
                self._write_down(run_dir, facts, known, refused)
                return True
        if launched is not None:
            self._report.decisions[run.run_id] = decision
            self._report.sent[run.run_id] = launched.job_id
        return True

    def _say_gone(self, run_dir: RunDir) -> None:
        """Nothing can be sent from a directory that is gone; from one that is away, not yet."""
        if is_purged(run_dir):
            purged = end_purged(self._around.ledger, [run_dir])
            self._report.warnings += [say_purged(run_id) for run_id in purged]
        else:
            self._report.problems[run_dir.path.name] = (
                f"{run_dir.path.parents[2]} is not there, and with it the run directory"
            )

    def _site(self, name: str) -> Site:
        """The site of that name: read once."""
        if name not in self._sites:
            self._sites[name] = self._around.find_site(name)
        return self._sites[name]

    def _queue(self, site: str) -> list[JobInfo]:
        """What is in the queue of a site: asked once, before the first run is sent there."""
        if site not in self._queues:
            self._queues[site] = list(self._around.connect(site).queue())
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

    def _write_down(self, run_dir: RunDir, facts: Facts, known: Known, decision: Decision) -> bool:
        """Put the decision into the journal, unless it stands there; whether it was new."""
        record = Decided(
            at=self._around.clock.now(),
            after=facts.last.number if facts.last else 0,
            action=decision.action.value,
            rule=decision.rule,
            why=decision.why,
            not_before=decision.not_before,
            mem_mb=decision.mem_mb,
        )
        said = record.model_dump(mode="json", exclude_none=True, exclude={"at", "record"})
        before = known.run.journal.get("decided", {})
        if said == {name: value for name, value in before.items() if name in said}:
            return False
        self._report.decisions[facts.run_id] = decision
        mark_unread(self._around.settings.home, run_dir)
        journal.append(run_dir, record)
        return True


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
