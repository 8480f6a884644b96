"""Fetch checkpoints that only the mirror has, each run in a process of its own.

A download takes minutes or hours, and must not delay a round. So the daemon starts ``hpcflow
restore`` beside itself, a few at once. A later round sees the end: in the run's files if it
succeeded, else in ``HPCFLOW_HOME/restoring``. If either process is killed, the next round starts
another, which continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hpcflow.errors import InputError
from hpcflow.ledger.rows import Known
from hpcflow.model.ids import is_run_id
from hpcflow.model.retry import Retry
from hpcflow.model.run import Run
from hpcflow.requeue.facts import facts_of, was_looked_for
from hpcflow.requeue.policy import Action, Decision, after_preemption
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.run_errors import RunErrors
from hpcflow.restore.local import frozen, newest_whole
from hpcflow.restore.process import reap
from hpcflow.schedulers.clusters import other_cluster
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import RunDir
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.restoring import (
    STARTED,
    is_cancelled,
    is_restored_now,
    keep_started,
    read_mark,
)

#: A login node has many users, and one download fills its line.
MOST_AT_ONCE: Final = 2


@dataclass
class Restores:
    """The restores of one round.

    Attributes:
        find_site: site name -> site, read once a round.
        begun: run id -> decision, for each process that was started.
        at_work: number of restores in progress.
    """

    context: RoundContext
    own: OwnRuns
    run_errors: RunErrors
    find_site: Callable[[str], Site]
    begun: dict[str, Decision] = field(default_factory=dict)
    at_work: int = 0

    def __post_init__(self) -> None:
        reap()
        home = self.context.settings.home
        try:
            names = [path.name for path in home.restoring.iterdir()]
        except OSError:
            names = []
        self.at_work = sum(self._is_at_work(name) for name in names if is_run_id(name))

    def restore_for_jobs(self, run_ids: Iterable[str]) -> None:
        """Restore the mirrored ones of these runs, so that their jobs can save again.

        Args:
            run_ids: the runs whose directory is gone while their job is pending or running.

        Raises:
            LeaseLostError: another process has taken the lease.
        """
        for run_id, known in self.context.ledger.known(list(run_ids)).items():
            run_dir = self.own.dir_of(run_id, known.run.run_dir)
            if run_dir is not None:
                with self.run_errors.of(run_id, known.run.site):
                    self.restore_purged(known, run_dir)

    def restore_purged(self, known: Known, run_dir: RunDir) -> bool:
        """Restore a run whose directory is gone, if its next attempt would need it.

        Its record may be gone, too: then only the ledger knows it.

        Returns:
            Whether it has a mirror.

        Raises:
            LeaseLostError: another process has taken the lease.
        """
        from hpcflow.restore.request import mirror_of_gone  # slow to import, rarely needed

        context, run_id = self.context, known.run.run_id
        site = self.find_site(known.run.site)
        run = frozen(run_dir)
        if run is not None and run.mirror is None:
            return False
        try:
            mirror_of_gone(context.ledger, run_dir, site, context.settings)
        except InputError:
            return False
        if is_cancelled(context.settings.home, run_id) or other_cluster(
            site, context.connect(known.run.site)
        ):
            return True
        now = context.clock.now()
        facts = facts_of(known, is_purged=True, is_mirrored=True)
        decision = after_preemption(facts, run.spec.retry if run is not None else Retry(), now)
        if decision.action is Action.RESTORE:
            self.begin(run_id, decision)
        return True

    def only_mirrored(self, known: Known, run_dir: RunDir, run: Run) -> int | None:
        """Return the train step of the newest checkpoint, if only the mirror may have it.

        None if scratch has it, or the mirror was searched and has no newer one than scratch.
        """
        if run.mirror is None:
            return None
        rows = self.context.ledger.checkpoints([run.run_id])
        folder = f"{RunDir(Path()).checkpoints}/"
        steps = [
            row.train_step for row in rows if row.removed is None and row.path.startswith(folder)
        ]
        newest = max(steps, default=None)
        if newest is None:
            return None
        here = newest_whole(run_dir)
        if (here is not None and here >= newest) or was_looked_for(known, here):
            return None
        return newest

    def begin(self, run_id: str, decision: Decision) -> None:
        """Start to restore a run, unless that is in progress or failed a moment ago.

        Raises:
            LeaseLostError: another process has taken the lease.
        """
        context = self.context
        home, now = context.settings.home, context.clock.now()
        if run_id in self.begun or is_restored_now(home, run_id):
            return
        mark = read_mark(home, run_id)
        is_due = mark is None or not mark.waits(now)
        if mark is not None and (is_due or mark.outcome != STARTED):
            self.run_errors.of_runs[run_id] = f"it cannot be restored: {mark.why}"
        if not is_due:
            return
        if self.at_work >= MOST_AT_ONCE:
            return
        context.require_lease()
        keep_started(home, run_id, context.clock)
        context.start_restore(context.settings, run_id)
        self.begun[run_id] = decision
        self.at_work += 1

    def _is_at_work(self, run_id: str) -> bool:
        """Return whether a run is being restored, or its process was just started."""
        home = self.context.settings.home
        mark = read_mark(home, run_id)
        if mark is not None and mark.outcome == STARTED:
            return mark.waits(self.context.clock.now()) or is_restored_now(home, run_id)
        return is_restored_now(home, run_id)
