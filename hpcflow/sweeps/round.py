"""The context of one round of a sweep: its state, its journal and its report."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from hpcflow.errors import InputError, StorageError
from hpcflow.ledger.rows import Known
from hpcflow.model.ids import make_run_id
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.state import RunState
from hpcflow.model.sweep import Submit
from hpcflow.model.sweep_records import Halted, Sweep, SweepRecord, Told
from hpcflow.requeue.round_context import RoundContext
from hpcflow.schedulers.clusters import other_cluster
from hpcflow.storage.approval import is_approved
from hpcflow.storage.locks import HeldLock
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_purged, linked
from hpcflow.storage.sweeps import (
    SweepDir,
    append,
    journal_size,
    lost_journal,
    read_journal,
    read_sweep,
)
from hpcflow.sweeps.budget import Rate, Taken, end_of, is_doubtful
from hpcflow.sweeps.state import SweepProgress, SweepState, Trial, apply, fold
from hpcflow.sweeps.trials import TrialRuns, is_lost, is_over, trial_name

if TYPE_CHECKING:
    from hpcflow.sweeps.study import Study


@dataclass
class TickReport:
    """The results of a round of one sweep.

    Attributes:
        state: None if no round ran.
        asked, told, pruned: numbers of trials.
        sent: run id -> job id.
        said: messages for people, each shown once.
        problems: errors; the next round tries again.
    """

    sweep_id: str
    state: SweepState | None = None
    asked: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    pruned: list[int] = field(default_factory=list)
    sent: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def has_news(self) -> bool:
        return bool(self.asked or self.told or self.pruned or self.sent or self.said)


class OvertakenError(Exception):
    """Another process has written to the journal during this round."""


class Round:
    """One round of one sweep.

    Attributes:
        progress: the state after the newest record of the journal.
        known: run id -> what the ledger has about it, for runs of open trials.
    """

    def __init__(self, around: RoundContext, sweep_dir: SweepDir, lock: HeldLock) -> None:
        self.around, self.sweep_dir = around, sweep_dir
        self.sweep: Sweep = read_sweep(sweep_dir)
        self._size = journal_size(sweep_dir)
        self.progress: SweepProgress = fold(
            self.sweep.spec, self.sweep.created_at, read_journal(sweep_dir)
        )
        self.report = TickReport(sweep_dir.sweep_id)
        self.known: dict[str, Known] = {}
        self._lock = lock
        self._study: Study | None = None
        self._study_knows = 0

    @cached_property
    def runs(self) -> TrialRuns:
        """The runs of its trials.

        Raises:
            InputError: its site is not defined any more, or this is another cluster.
        """
        site = self.around.find_site(self.sweep.site)
        context = self.around.launch_context(site, self.around.connect(self.sweep.site))
        return TrialRuns(self.sweep, context, lock=self._lock, trials=self.progress.trials)

    def is_elsewhere(self) -> bool:
        """Return whether it is a sweep of another cluster that shares this home.

        Raises:
            InputError: its site is not defined any more.
        """
        site = self.sweep.site
        return bool(other_cluster(self.around.find_site(site), self.around.connect(site)))

    def require_site(self) -> None:
        """Raise InputError unless the sweep's site is still defined, and is this cluster."""
        _ = self.runs

    def require_complete_journal(self) -> None:
        """Stop the round if the journal has lost trials: they would be submitted twice.

        A trial is journaled before any of its runs is made. So a run that is not in the journal
        was in the lost part.

        Raises:
            OvertakenError: another process has written to the journal.
            StorageError: the journal is missing or truncated.
        """
        made = self.around.ledger.trial_runs(
            self.sweep_dir.sweep_id, self.sweep.spec.name, user=self.around.settings.user
        )
        known = {run_id for trial in self.progress.trials for run_id in trial.all_runs}
        # A run restored from a store can claim to be a trial of any sweep.
        lost = [run_id for run_id in made if run_id not in known and self._is_trial(run_id)]
        if not lost:
            return
        if journal_size(self.sweep_dir) != self._size:
            raise OvertakenError
        raise lost_journal(self.sweep_dir, lost)

    def write(self, *records: SweepRecord) -> None:
        """Append ``records`` to the journal, synced to disk, and update the state.

        Raises:
            OvertakenError: another process has written to the journal since it was read: a command,
                or a round on another machine if the file system has no locks.
        """
        before = journal_size(self.sweep_dir)
        if before != self._size:
            raise OvertakenError
        append(self.sweep_dir, records)
        self._size = journal_size(self.sweep_dir)
        added = sum(len(record.to_line().encode()) for record in records)
        if self._size - before not in (added, added + 1):  # a torn line before it was closed
            raise OvertakenError
        for record in records:
            apply(self.progress, record)

    def look(self) -> None:
        """Read from the ledger the runs of open trials."""
        ids = [run_id for trial in self.progress.open for run_id in trial.all_runs]
        self.known = self.around.ledger.known(ids) if ids else {}

    def tell(
        self,
        trial: Trial,
        outcome: str,
        *,
        values: list[float] | None = None,
        why: str | None = None,
        stopped: bool = False,
    ) -> None:
        """Journal how a trial ended."""
        self.write(
            Told(
                at=self.around.clock.now(),
                trial=trial.number,
                outcome=outcome,
                values=values or [],
                why=why,
                stopped=stopped,
            )
        )
        (self.report.pruned if outcome == "pruned" else self.report.told).append(trial.number)

    def halt(self, why: str, next_action: str) -> None:
        """Halt the sweep until the user resumes it."""
        if self.progress.halted is None:
            self.write(Halted(at=self.around.clock.now(), why=why, next_action=next_action))
            self.report.said.append(f"{why} → {next_action}")

    @property
    def is_cancelled(self) -> bool:
        """Whether a stop was requested that also cancels active trials."""
        stop = self.progress.stop
        return stop is not None and stop.cancel

    def run_state(self, run_id: str) -> RunState | None:
        """Return how a run ended; None while it may continue."""
        known = self.known.get(run_id)
        if known is not None and is_over(known):
            return RunState(known.run.state)
        for run_dir in linked(self.around.settings.home, [run_id]):
            if is_purged(run_dir) and is_lost(known):
                return RunState.FAILED
        return None

    def was_made(self, run_id: str) -> bool:
        return self.around.settings.home.scratch_link(run_id).is_symlink()

    def _is_trial(self, run_id: str) -> bool:
        """Return whether a run that is approved in this home is a trial of this sweep."""
        run_dir = self.around.settings.home.run_dir(run_id)
        with suppress(StorageError):
            return is_approved(run_dir) and (
                read_run(run_dir).parent_sweep == self.sweep_dir.sweep_id
            )
        return False

    def why_no_submission(self) -> str | None:
        """Return why no run without a job is submitted any more; None if it may be."""
        if self.progress.state is not SweepState.RUNNING:
            return f"the sweep was {'stopped' if self.progress.stop is not None else 'halted'}"
        return end_of(self.progress, self.around.clock.now())

    @property
    def is_doubtful(self) -> bool:
        """Whether the deadline has passed by the clock of this round alone."""
        is_running = self.progress.state is SweepState.RUNNING
        return is_running and is_doubtful(self.progress, self.around.clock.now())

    def rate(self) -> Rate:
        """Return the cost of one trial at its time limit; empty if no budget needs it."""
        try:
            return self.runs.rate() if self._has_amounts else Rate(None, None)
        except InputError:  # it does not fit its site any more; its submission reports that
            return Rate(None, None)

    @property
    def _has_amounts(self) -> bool:
        budget = self.progress.budget
        return budget.gpu_hours is not None or budget.cost_usd is not None

    def taken(self, *, retried: str | None = None) -> dict[int, Taken]:
        """Return the cost of open trials so far; empty if no budget needs it.

        Args:
            retried: a run to count as failed and retried.
        """
        if not self._has_amounts:
            return {}
        found: dict[int, Taken] = {}
        for trial in self.progress.open:
            running = [run_id for run_id in trial.current_runs if run_id != retried]
            failed = [run_id for run_id in trial.all_runs if run_id not in running]
            found[trial.number] = Taken(self._took(failed), self._took(running))
        return found

    def _took(self, run_ids: Iterable[str]) -> Rate:
        costs = [self.runs.cost(self.known.get(run_id)) for run_id in run_ids]
        usd = sum((each.cost_usd for each in costs if each.cost_usd is not None), Decimal(0))
        return Rate(sum(each.gpu_hours for each in costs), usd)

    def is_at_rest(self, run_id: str) -> bool:
        """Return whether a run is over, or was never made."""
        known = self.known.get(run_id)
        if known is None:
            return not self.was_made(run_id)
        return is_over(known) or self.run_state(run_id) is not None

    def new_run_id(self, trial: int, repeat: int) -> str:
        name = trial_name(self.sweep, trial, repeat)
        return make_run_id(name, self.around.clock.now(), os.urandom(8))

    def study_to_judge(self) -> Study:
        """Return the study, as it was when this round first needed it."""
        if self._study is None:
            # Importing Optuna takes longer than a round without news may take.
            from hpcflow.sweeps.study import Study

            self._study = Study(self.sweep_dir.sweep_id, self.progress)
            self._study_knows = len(self.progress.told_in_order)
        return self._study

    def study_to_ask(self) -> Study:
        """Return the study, rebuilt if a trial was told since; it adds new trials itself."""
        if self._study_knows != len(self.progress.told_in_order):
            self._study = None
        return self.study_to_judge()

    @property
    def is_population(self) -> bool:
        """Whether trials continue from each other's checkpoints."""
        return self.progress.spec.sampler.kind is SamplerKind.PBT

    def was_sent(self, run_id: str) -> bool:
        """Return whether a run has, or had, a job."""
        known = self.known.get(run_id)
        return run_id in self.report.sent or (known is not None and known.run.job_id is not None)

    @property
    def in_arrays(self) -> bool:
        """Whether trials are submitted as job arrays."""
        return self.progress.spec.submit is Submit.ARRAY
