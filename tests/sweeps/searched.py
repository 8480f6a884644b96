"""A person with a sweep on a cluster in memory: trials report what the test lets them report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcflow.clock import to_text
from hpcflow.launch.cancel import end_jobs, request_cancel
from hpcflow.launch.connecting import ArrayFiles
from hpcflow.launch.context import LaunchContext
from hpcflow.requeue.tick import tick as requeue_tick
from hpcflow.schedulers.arrays import show_tasks
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import run_dir_of
from hpcflow.storage.sweeps import SweepDir, append
from hpcflow.sweeps.changing import go_on
from hpcflow.sweeps.round import TickReport
from hpcflow.sweeps.rounds import tick_all
from hpcflow.sweeps.starting import plan_sweep, start_sweep
from hpcflow.sweeps.state import SweepProgress, Trial, TrialState
from hpcflow.sweeps.view import look
from tests.requeue.watched import Watched

SWEEP = """
name: search
base: config.yaml
space:
  lr: {low: 1.0e-4, high: 1.0, log: true}
objective: {metric: accuracy, direction: maximize}
parallel: 4
budget: {trials: 8}
"""


class Searched(Watched):
    """A desk with a sweep."""

    sweep_dir: SweepDir

    def begin(self, more: str = "", *, text: str = SWEEP) -> SweepDir:
        """Start a sweep; keys in ``more`` go over those of ``text``."""
        path = self.folder / "sweep.yaml"
        path.write_text(_over(text, more))
        context = LaunchContext(self.settings, self.site, self.slurm, self.clock)
        plan = plan_sweep(path, context)
        self.sweep_dir = start_sweep(plan, self.settings)
        return self.sweep_dir

    @property
    def scheduler(self) -> Scheduler:
        """As hpcflow itself sees it: arrays task by task."""
        return show_tasks(self.slurm, ArrayFiles(self.settings.home))

    def cancel(self, run_dir: RunDir) -> str | None:
        request_cancel(run_dir, settings=self.settings, clock=self.clock)
        return end_jobs(run_dir, scheduler=self.scheduler, clock=self.clock)

    def jobs(self) -> list[JobInfo]:
        """All that the queue remembers."""
        return self.scheduler.queue()

    def round(self) -> TickReport:
        """What `hpcflow sweep tick` does, a minute after the last one."""
        self.clock.advance(60)
        with self.around() as around:
            requeue_tick(around)
            (report,) = tick_all(around, only=self.sweep_dir)
        return report

    def resume_sweep(self, *overrides: str) -> None:
        """`hpcflow sweep resume`, without its round."""
        record = go_on(
            self.sweep_dir,
            by="ada",
            now=self.clock.now(),
            parallel=None,
            overrides=overrides,
            site=self.site,
        )
        append(self.sweep_dir, [record])

    @property
    def progress(self) -> SweepProgress:
        return look(self.sweep_dir)[1]

    def trial(self, number: int) -> Trial:
        return self.progress.trials[number]

    def states(self) -> list[str]:
        return [trial.state.value for trial in self.progress.trials]

    def running(self) -> list[int]:
        trials = self.progress.trials
        return [trial.number for trial in trials if trial.state is TrialState.RUNNING]

    def run_dir(self, trial: int, repeat: int = 0) -> RunDir:
        run_id = self.trial(trial).current_runs[repeat]
        return run_dir_of(self.settings.home, run_id)

    def job(self, trial: int, repeat: int = 0) -> str:
        """The id of the newest job of a trial."""
        run_id = self.trial(trial).current_runs[repeat]
        return [job.job_id for job in self.jobs() if job.job_name.split(":")[0] == run_id][-1]

    def event(
        self, trial: int, kind: str, *, repeat: int = 0, attempt: int | None = None, **facts: Any
    ) -> None:
        run_dir = self.run_dir(trial, repeat)
        number = attempt or max(run_dir.attempt_numbers())
        said = {"at": to_text(self.clock.now()), "event": kind, **facts}
        with run_dir.attempt(number).events.open("a") as file:
            file.write(json.dumps(said) + "\n")

    def reports(self, trial: int, percent: int, accuracy: float | None, **how: Any) -> None:
        """A trial has come so far of its hundred train steps."""
        self.event(
            trial,
            "progress",
            train_step=percent,
            total_train_steps=100,
            metrics={"accuracy": accuracy},
            **how,
        )

    def completes(self, trial: int, accuracy: float | None, *, repeat: int = 0) -> None:
        """Its program comes to its end."""
        metrics = {"accuracy": accuracy}
        self.event(trial, "finished", repeat=repeat, train_step=100, metrics=metrics)
        self.slurm.end(self.job(trial, repeat), "COMPLETED", exit_code=0)

    def fails(self, trial: int, *, times: int = 1) -> None:
        """Its program fails, and again when it is sent again."""
        for _ in range(times):
            self.slurm.end(self.job(trial), "FAILED", exit_code=1)
            self.clock.advance(4000)
            self.round()


def _over(text: str, more: str) -> str:
    """``text`` without the top-level keys that ``more`` has, and ``more``."""
    theirs = {line.split(":")[0] for line in more.splitlines() if line[:1].isalpha()}
    kept: list[str] = []
    keeps = True
    for line in text.splitlines():
        if line[:1].isalpha():
            keeps = line.split(":")[0] not in theirs
        if keeps:
            kept.append(line)
    return "\n".join([*kept, more, ""])


def shape(path: Path) -> list[str]:
    """The kinds of records of a journal, in order."""
    return [json.loads(line)["record"] for line in path.read_text().splitlines()]
