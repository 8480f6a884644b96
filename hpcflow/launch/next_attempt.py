"""Place, render and submit the next attempt of a run. The callers decide whether and when."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from hpcflow.config.merge import parse_override
from hpcflow.errors import SpecError, SubmissionRefused
from hpcflow.history import RunHistory
from hpcflow.launch import submission
from hpcflow.launch.committing import Commitment, commitment_of
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.restarts import adopt_claimed
from hpcflow.launch.run import Launched
from hpcflow.model.journal import Changed, Submitted
from hpcflow.model.run import Run
from hpcflow.placement.mtbf import mtbf_of
from hpcflow.placement.run_paths import template_dirs, trust_on
from hpcflow.provenance.frozen_code import no_code, renew_code
from hpcflow.rendering.context import Standby
from hpcflow.rendering.directives import START_CONDITIONS
from hpcflow.rendering.job import make_integrity_check, render_job
from hpcflow.rendering.templates import keep_compiled
from hpcflow.sites.placement import next_placement
from hpcflow.storage.checkpoints import newest_complete
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock
from hpcflow.storage.path_check import checked_runtime_sums
from hpcflow.storage.rundir import renew_params


class NextAttempt:
    """The next attempt of a run, ready to be submitted.

    Args:
        avoid: nodes to exclude, if Slurm accepts that.
        is_standby: whether it waits for the end of the running attempt.
        changed: a change that is journaled before the submission.

    Raises:
        SpecError: the run does not fit its site any more.
        ScratchError: another user could replace a directory on the path to the run directory.
        StorageError: its ``runtime/`` cannot be read, or another user owns a file in it; or its
            code snapshot is lost.
        ValueError: the id of the running attempt's job is not a Slurm job id.
    """

    def __init__(
        self,
        context: LaunchContext,
        run: Run,
        journal: Journal,
        *,
        mem_mb: int | None = None,
        avoid: Sequence[str] = (),
        is_standby: bool = False,
        changed: Changed | None = None,
    ) -> None:
        self._context, self._run, self._journal = context, run, journal
        self._run_dir = run_dir = journal.run_dir
        settings, site = context.settings, context.site
        history = journal.history if changed is None else journal.history.plus(changed)
        last = history.last
        self._number = last.next_number
        self._placement = next_placement(run, site, mem_mb)
        self._resume_from = newest_complete(run_dir) or run.begins_from
        self._start_conditions = _start_conditions(run_dir, history)
        self._avoid = tuple(avoid)
        self._standby = Standby(last.number, last.job_id or "") if is_standby else None
        self._mtbf_s = mtbf_of(run, settings, context.clock.now())
        trust = trust_on(site, settings, self._placement.account)
        renew_code(run_dir, run, excluded=no_code(run, settings))
        self._integrity = make_integrity_check(
            run_dir.path, trust, *checked_runtime_sums(run_dir, trust)
        )
        self._script = self._render(self._avoid)

    def require_room(self) -> None:
        """Check that the budgets have room for it; nothing is written.

        Raises:
            BudgetError: a hard budget has no room.
        """
        self._commitment().require_room(self._context.clock, self._journal)

    def _commitment(self) -> Commitment:
        context = self._context
        return commitment_of(
            self._run,
            self._number,
            self._placement,
            site=context.site,
            home=context.settings.home,
            clock=context.clock,
        )

    def send(self, lock: HeldLock) -> Launched:
        """Submit it; the caller holds ``lock`` and has settled the last attempt.

        If a job that Slurm restarted has claimed the attempt, that is its job. If Slurm refuses the
        job, the reason may be the excluded nodes: one has left the cluster, or too few remain. Then
        it is submitted without exclusions.

        Raises:
            BudgetError: a hard budget has no room; no intent is journaled.
            SchedulerError: it could not be submitted; journaled.
        """
        claimed = None
        if self._standby is None:
            claimed = adopt_claimed(self._journal, self._context.clock)
        renew_params(self._run_dir, self._run)
        submitted = claimed or self._send_without_exclusions_on_refusal(lock)
        keep_compiled(self._context.settings.home.compiled_templates)
        return Launched(
            self._run.run_id,
            submitted.attempt,
            submitted.job_id,
            self._run_dir.path,
            self._run.site,
        )

    def _render(self, excluded: Sequence[str]) -> str:
        settings = self._context.settings
        return render_job(
            self._run,
            self._context.site,
            self._placement,
            attempt=self._number,
            resume_from=self._resume_from,
            integrity=self._integrity,
            excluded=excluded,
            start_conditions=self._start_conditions,
            standby=self._standby,
            mtbf_s=self._mtbf_s,
            template_dirs=template_dirs(settings),
            compiled=settings.home.compiled_templates,
        )

    def _send_without_exclusions_on_refusal(self, lock: HeldLock) -> Submitted:
        try:
            return self._send(self._script, self._avoid, lock)
        except SubmissionRefused:
            if not self._avoid:
                raise
            # The refused attempt's number is free, and no job has its name.
            return self._send(self._render(()), (), lock)

    def _send(self, script: str, excluded: Sequence[str], lock: HeldLock) -> Submitted:
        return submission.send(
            self._run,
            self._journal,
            self._number,
            script,
            scheduler=self._context.scheduler,
            clock=self._context.clock,
            lock=lock,
            placement=self._placement,
            resume_from=self._resume_from,
            commitment=self._commitment(),
            excluded=excluded,
            after=self._standby.after if self._standby else None,
        )


def _start_conditions(run_dir: RunDir, history: RunHistory) -> list[str]:
    """Return the keys of ``resources`` for which no attempt has started since they were set.

    Once an attempt has started, the condition was met. Slurm may have forgotten the jobs that a
    dependency names, and would refuse it.
    """
    return [key for key in START_CONDITIONS if not _is_met(key, run_dir, history)]


def _is_met(key: str, run_dir: RunDir, history: RunHistory) -> bool:
    return any(
        any(each.started_at is not None for each in attempt.observed)
        or submission.read_claim(run_dir, number) is not None
        for number, attempt in history.attempts_since(partial(_sets, key)).items()
    )


def _sets(key: str, record: Changed) -> bool:
    for override in record.overrides:
        with suppress(SpecError):  # the journal may come from a store
            resources = parse_override(override).data.get("resources")
            if isinstance(resources, dict) and key in resources:
                return True
    return False
