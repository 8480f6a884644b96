"""The runs of a trial: plan, create and submit exactly once, end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpcflow.documents import Document, Place
from hpcflow.errors import (
    BudgetError,
    InputError,
    MirrorError,
    SpecError,
    StorageError,
    SubmissionDelayed,
)
from hpcflow.launch import submission
from hpcflow.launch.cancel import request_cancel
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.jobs import cancel_requested, discard_unrecorded
from hpcflow.ledger.rows import AttemptRow, Known
from hpcflow.model.execution import CodeMode
from hpcflow.model.ids import parse_job_name
from hpcflow.model.next_action import STOP
from hpcflow.model.spec import RunSpec, frozen, thaw
from hpcflow.model.state import AttemptState, RunState
from hpcflow.model.sweep import trial_params
from hpcflow.model.sweep_records import Sweep
from hpcflow.placement.price import hourly_usd
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.schedulers.clusters import require_cluster
from hpcflow.settings import Settings
from hpcflow.sites.placement import Placement, place
from hpcflow.storage.checkpoints import newest_complete
from hpcflow.storage.code_snapshot import read_archive
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock, submit_lock
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_gone, linked, run_dir_of
from hpcflow.storage.sweeps import SweepDir
from hpcflow.sweeps.budget import Rate
from hpcflow.sweeps.state import Trial

# The launch modules take long to import, and most rounds submit nothing.
if TYPE_CHECKING:
    from hpcflow.launch.plan import Plan
    from hpcflow.launch.run import Launched
    from hpcflow.launch.start import Start
    from hpcflow.provenance.snapshot import Taken

#: Fewer runs are not submitted as an array.
_FEWEST: Final = 2
_AT_REST: Final = (AttemptState.ENDED.value, AttemptState.WITHDRAWN.value)


@dataclass(frozen=True)
class Cost:
    """Time and cost of the attempts of a run."""

    seconds: float
    gpu_hours: float
    cost_usd: Decimal | None


def trial_name(sweep: Sweep, trial: int, repeat: int) -> str:
    """Return the name of the run of a trial; its run id begins with it."""
    suffix = f"r{repeat}" if sweep.spec.repeats > 1 else ""
    return f"{sweep.spec.name}-t{trial}{suffix}"


def trial_spec(sweep: Sweep, trial: int, params: Mapping[str, Any], repeat: int) -> RunSpec:
    """Return the spec of the run of repeat ``repeat`` of a trial.

    Raises:
        ValueError: the values make no valid run.
    """
    data = frozen(sweep.base)
    data["name"] = trial_name(sweep, trial, repeat)
    data["params"] = {**data["params"], **trial_params(sweep.spec, dict(params))}
    seed = data["params"].get("seed")
    if sweep.spec.repeats > 1 and type(seed) is int:
        data["params"]["seed"] = seed + repeat
    return thaw(data)


def code_of(sweep: Sweep, settings: Settings) -> Taken | None:
    """Return the code snapshot that all trials of a sweep execute; None without one.

    Raises:
        StorageError: the snapshot is missing or damaged.
    """
    if sweep.code is None:
        return None
    from hpcflow.provenance.code_state import CodeState
    from hpcflow.provenance.snapshot import Taken

    folder = settings.home.sweeps / sweep.sweep_id
    with storage_errors("read the code snapshot in", folder):
        tree = read_archive(folder, sweep.code.digest)
    if tree is None:
        raise StorageError(
            f"the code snapshot in {folder} is missing or damaged",
            next_action=f"stop the sweep: hpcflow sweep stop {sweep.sweep_id}; then start it again",
        )
    state = CodeState(sweep.provenance.git_commit, sweep.provenance.git_dirty)
    return Taken(tree, Path(sweep.code.root), state=state)


class TrialRuns:
    """Makes, submits and ends the runs of one sweep.

    Args:
        is_new: the sweep has no code snapshot yet, so each plan takes one.

    Raises:
        InputError: this is not the cluster of the sweep.
    """

    def __init__(
        self,
        sweep: Sweep,
        context: LaunchContext,
        *,
        lock: HeldLock | None = None,
        is_new: bool = False,
        trials: Sequence[Trial] = (),
    ) -> None:
        require_cluster(context.site, context.scheduler)
        self._lock, self._is_new, self._trials = lock, is_new, trials
        self._sweep, self._context = sweep, context
        self._settings, self._clock = context.settings, context.clock
        self._site, self._scheduler = context.site, context.scheduler

    def plan(
        self,
        trial: int,
        params: Mapping[str, Any],
        repeat: int,
        run_id: str,
        start: Path | None = None,
    ) -> Plan:
        """Plan the run of a trial.

        Args:
            start: a checkpoint of another run to continue from.

        Raises:
            SpecError: the run does not fit its site any more.
            StorageError: the code snapshot is missing or damaged.
        """
        from hpcflow.launch.plan import OfSweep, plan_spec

        sweep = self._sweep
        file = sweep.provenance.config_path
        try:
            spec = trial_spec(sweep, trial, params, repeat)
        except ValueError as error:
            raise SpecError(
                f"trial {trial} is not a valid run: {error}", next_action="correct `space`"
            ) from None
        if sweep.code is None and not self._is_new:
            spec = spec.model_copy(update={"code": CodeMode.LIVE})
        return plan_spec(
            spec,
            settings=self._settings,
            clock=self._clock,
            site=self._site,
            site_reference=sweep.site,
            document=Document(Path(file) if file else None, {}, Place(file, None)),
            working_dir=Path(sweep.working_dir),
            config=Path(file) if file else None,
            of_sweep=OfSweep(
                sweep.sweep_id, run_id, trial, repeat, sweep.umask, start, self._find_start
            ),
            taken=self._taken,
        )

    @cached_property
    def _taken(self) -> Taken | None:
        return code_of(self._sweep, self._settings)

    def _find_start(self) -> Start:
        """Find what the base run starts from: first the copy that another trial has.

        So the store is asked once, and the sweep continues if the source run is deleted.
        """
        from hpcflow.launch.start import find_start, start_of

        home, text = self._settings.home, self._sweep.base.start_from
        for run_id in (run_id for trial in self._trials for run_id in trial.all_runs):
            for run_dir in linked(home, [run_id]):
                with suppress(StorageError, MirrorError):
                    if found := start_of(run_dir, clock=self._clock):
                        return found
        assert text is not None
        return find_start(text, site=self._site, settings=self._settings, clock=self._clock)

    def send(
        self, trial: Trial, repeat: int, run_id: str, *, source: str | None = None
    ) -> Launched | None:
        """Make and submit a run; None if it is submitted already, or may not be any more.

        Args:
            source: the run whose newest checkpoint it continues from.

        Raises:
            SchedulerError, StorageError, ScratchError: temporary; the next round tries again.
            InputError, SubmissionRefused: permanent.
        """
        from hpcflow.launch.run import launch

        home = self._settings.home
        if not home.scratch_link(run_id).is_symlink():
            start = None if source is None else self._newest_of(source)
            plan = self.plan(trial.number, trial.params, repeat, run_id, start)
            if Path(plan.run.run_dir).exists():
                discard_unrecorded(Path(plan.run.run_dir))
            return launch(
                plan, settings=self._settings, scheduler=self._scheduler, clock=self._clock
            )
        run_dir = run_dir_of(home, run_id)
        return None if is_gone(run_dir) else self._send_made(run_dir)

    def _newest_of(self, source: str) -> Path:
        run_dir = run_dir_of(self._settings.home, source)
        newest = newest_complete(run_dir)
        if newest is None:
            raise StorageError(f"run {source} has no checkpoint any more to continue from")
        return run_dir.path / newest

    def has_checkpoint(self, run_id: str) -> bool:
        """Return whether another run can continue from this one."""
        home = self._settings.home
        return (
            home.scratch_link(run_id).is_symlink()
            and newest_complete(run_dir_of(home, run_id)) is not None
        )

    def send_arrays(self, plans: list[Plan], sweep_dir: SweepDir) -> Iterator[dict[str, str]]:
        """Submit runs as arrays, as large as the cluster accepts; yield run id -> job id of each.

        A single run, and runs that are not alike, are not submitted.

        Args:
            plans: of runs without a job.

        Raises:
            BudgetError, SchedulerError, StorageError, ScratchError: temporary; the next round
                tries the rest again.
            SubmissionRefused: permanent.
        """
        from hpcflow.launch.array import are_alike, send_array

        size = min(self._scheduler.most_tasks(), len(plans))
        if size < _FEWEST or not are_alike(plans):
            return
        has_sent = False
        while len(plans) >= _FEWEST:
            assert self._lock is not None, "without a lock, trials can only be planned"
            try:
                sent = send_array(
                    plans[:size],
                    sweep_dir,
                    settings=self._settings,
                    scheduler=self._scheduler,
                    clock=self._clock,
                    lock=self._lock,
                )
            except BudgetError as error:  # submit as many as the budget allows
                if not error.fits:
                    raise
                if error.fits < _FEWEST:
                    return
                size = error.fits
                continue
            except SubmissionDelayed:  # the array may be too large
                if has_sent or size <= _FEWEST:
                    raise
                size = max(_FEWEST, size // 4)
                continue
            has_sent, plans = True, plans[size:]
            yield sent.tasks

    def is_never_sent(self, run_id: str) -> bool:
        """Return whether a run never had a job, and has none without a new submission."""
        home = self._settings.home
        if not home.scratch_link(run_id).is_symlink():
            return True
        history = Journal(run_dir_of(home, run_id)).history
        return not history.has_job and (history.last.intent is None or history.last.is_void)

    def is_unsent(self, run_id: str) -> bool:
        """Return whether a run may be submitted in an array.

        It has no job, for certain, and is not held, cancelled or changed.
        """
        home = self._settings.home
        if not home.scratch_link(run_id).is_symlink():
            return True
        run_dir = run_dir_of(home, run_id)
        if is_gone(run_dir) or run_dir.cancel.exists():
            return False
        history = Journal(run_dir).history
        return history.last.is_unsent and not (history.is_stopped or history.is_changed)

    def was_refused(self, run_id: str) -> bool:
        """Return whether Slurm did not accept the last submission of a run."""
        home = self._settings.home
        if not home.scratch_link(run_id).is_symlink():
            return False
        last = Journal(run_dir_of(home, run_id)).history.last
        return last.intent is not None and last.is_void

    def _send_made(self, run_dir: RunDir) -> Launched | None:
        """Submit a run that was made but not submitted: its process was killed, or Slurm failed."""
        from hpcflow.launch.next_attempt import NextAttempt

        with submit_lock(run_dir, wait_s=0) as lock:
            journal = Journal(run_dir)
            submission.settle(journal, scheduler=self._scheduler, clock=self._clock, lock=lock)
            if journal.history.last.job_id is not None or journal.history.is_held:
                return None
            if cancel_requested(journal, user=self._settings.user, clock=self._clock):
                return None
            return NextAttempt(self._context, read_run(run_dir), journal).send(lock)

    def request_end(self, run_id: str, *, why: str, prune: bool = False) -> None:
        """Cancel a run. A job of it that starts later exits at once.

        Args:
            prune: tell its program to save nothing more.
        """
        home = self._settings.home
        if not home.scratch_link(run_id).is_symlink():
            return
        run_dir = run_dir_of(home, run_id)
        is_told = is_gone(run_dir) or run_dir.cancel.exists()
        if is_told and Journal(run_dir).history.is_cancelled:
            return
        request_cancel(run_dir, settings=self._settings, clock=self._clock, why=why, prune=prune)

    def cancel_jobs(self, run_ids: Sequence[str], queue: Sequence[JobInfo]) -> None:
        cancel_jobs(run_ids, queue, self._scheduler)

    @cached_property
    def _placement(self) -> Placement:
        return place(self._sweep.base, self._site)

    def rate(self) -> Rate:
        """Return the cost of one trial at its time limit."""
        return rate_of(self._sweep, self._placement, self._clock.now())

    def cost(self, known: Known | None) -> Cost:
        """Return time and cost of a run so far.

        An attempt without a bill yet counts with its times and the current price.
        """
        if known is None:
            return Cost(0.0, 0.0, None)
        now = self._clock.now()
        try:
            hourly = hourly_usd(self._placement, now)
        except InputError:  # the site file has changed; the hours are still known
            hourly = None
        costs = [_cost_of(row, known.run.gpus, hourly, now) for row in known.attempts]
        usd = [each.cost_usd for each in costs if each.cost_usd is not None]
        is_known = bool(costs) and len(usd) == len(costs)
        return Cost(
            sum(each.seconds for each in costs),
            sum(each.gpu_hours for each in costs),
            sum(usd, Decimal(0)) if is_known else None,
        )


def _cost_of(row: AttemptRow, gpus: int, hourly_usd: Decimal | None, now: datetime) -> Cost:
    if row.billed_by is not None:
        usd = None if row.cost_usd is None else Decimal(row.cost_usd)
        return Cost(row.elapsed_s or 0.0, row.gpu_hours or 0.0, usd)
    seconds = 0.0
    if row.started_at is not None and (row.ended_at is not None or row.cause is None):
        seconds = max(0.0, ((row.ended_at or now) - row.started_at).total_seconds())
    usd = None if hourly_usd is None else hourly_usd * Decimal(round(seconds * 1000)) / 3_600_000
    return Cost(seconds, seconds * gpus / 3600, usd)


def rate_of(sweep: Sweep, placed: Placement, at: datetime) -> Rate:
    """Return the cost of one trial at its time limit, with the prices at ``at``."""
    if placed.time_limit_min is None:
        return Rate(None, None)
    hours = placed.time_limit_min / 60 * sweep.spec.repeats
    hourly = hourly_usd(placed, at)
    gpus = placed.nodes * placed.gpus_per_node
    return Rate(hours * gpus, None if hourly is None else hourly * Decimal(str(hours)))


def cancel_jobs(
    run_ids: Sequence[str], queue: Sequence[JobInfo], scheduler: Scheduler
) -> list[str]:
    """Cancel all jobs in ``queue`` of these runs, with one call; return their ids."""
    wanted = set(run_ids)
    named = ((parse_job_name(job.job_name), job) for job in queue)
    jobs = [
        job.job_id
        for name, job in named
        if name is not None and name[0] in wanted and job.state is not AttemptState.ENDED
    ]
    if jobs:
        scheduler.cancel(jobs)
    return jobs


def is_over(known: Known | None) -> bool:
    """Return whether a run has ended and will not be resubmitted."""
    if known is None:
        return False
    state = RunState(known.run.state)
    if state in (RunState.COMPLETED, RunState.CANCELLED):
        return True
    return known.run.next_action == STOP


def is_lost(known: Known | None) -> bool:
    """Return whether a run whose directory was purged is lost: no mirror, and no active job."""
    if known is None:
        return True
    is_under_way = any(row.state not in _AT_REST for row in known.attempts)
    return known.run.mirror_url is None and not is_under_way
