"""A person whose runs a daemon watches, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpcflow.clock import to_text
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.journal import JournalRecord
from hpcflow.projection import rebuild
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.tick import Report, tick
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.storage import journal
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.runs import list_runs, run_dir_of
from tests.launch.desk import Desk


class Watched(Desk):
    """A desk whose runs are watched."""

    host = "login1"
    #: Run ids for which the daemon started `hpcflow restore`.
    restoring: list[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.restoring = []

    def start_restore(self, _settings: Settings, run_id: str) -> None:
        """What the daemon starts beside itself; it does nothing yet."""
        self.restoring.append(run_id)

    @property
    def scheduler(self) -> Scheduler:
        """The cluster, as hpcflow itself sees it."""
        return self.slurm

    @contextmanager
    def around(self, may_act: Callable[[], bool] = lambda: True) -> Iterator[RoundContext]:
        """What a round works with."""
        with open_ledger(self.settings.ledger_url) as ledger:
            yield self._around(ledger, may_act)

    def _around(self, ledger: Ledger, may_act: Callable[[], bool]) -> RoundContext:
        return RoundContext(
            ledger,
            self.settings,
            self.clock,
            connect=lambda _: self.scheduler,
            find_site=lambda _: self.site,
            may_act=may_act,
            start_restore=self.start_restore,
            host=self.host,
        )

    def tick(self, may_act: Callable[[], bool] = lambda: True) -> Report:
        with self.around(may_act) as around:
            return tick(around)

    def ticks(self, steps_s: Iterable[float]) -> Iterator[Report]:
        """A tick after each of these times, with the ledger open in between, as a daemon has it."""
        with open_ledger(self.settings.ledger_url) as ledger:
            for step_s in steps_s:
                self.clock.advance(step_s)
                yield tick(self._around(ledger, lambda: True))

    def end(
        self,
        job_id: str,
        raw_state: str,
        *,
        checkpoint: int | None = None,
        path: str | None = None,
        **how: Any,
    ) -> None:
        """The job ends, after it made a checkpoint."""
        job = next(job for job in self.slurm.queue() if job.job_id == job_id)
        run_id, attempt = job.job_name.split(":")
        run_dir = run_dir_of(self.settings.home, run_id)
        if checkpoint is not None:
            name = path or f"checkpoints/{checkpoint:09d}"
            event = {"event": "checkpoint", "train_step": checkpoint, "path": name}
            said = {"at": to_text(self.clock.now()), **event, "size_bytes": 1}
            with run_dir.attempt(int(attempt)).events.open("a") as file:
                file.write(json.dumps(said) + "\n")
        self.slurm.end(job_id, raw_state, **how)

    def say(self, run_dir: Path, record: JournalRecord) -> None:
        mark_dirty(self.settings.home, self.settings.home.run_dir(run_dir))
        journal.append(self.settings.home.run_dir(run_dir), record)

    def assert_rebuilt_alike(self, run_id: str) -> None:
        """From an empty database the files tell the same."""
        seen = self.seen(run_id)
        with open_ledger(f"sqlite:///{self.folder / 'rebuilt.sqlite'}") as ledger:
            rebuild(ledger, list_runs(self.settings.home))
            assert ledger.run(run_id) == seen
