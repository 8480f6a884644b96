"""Launching, resuming and cancelling, when jobs, journals and scratch are not as they should be."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpcflow.errors import InputError, SchedulerUnavailable, StorageError, SubmissionInDoubt
from hpcflow.launch.plan import make_plan
from hpcflow.launch.run import Launched, cancel, launch, resume
from hpcflow.ledger.store import open_ledger
from hpcflow.model.state import AttemptState, RunState
from hpcflow.observe.refresh import refresh
from hpcflow.settings import load_settings
from hpcflow.sites.loader import load_site, search_path
from hpcflow.storage.layout import RunDir
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault

CONFIG = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m, account: physics}
"""


@dataclass
class Desk:
    """A person, a cluster in memory, and a clock that stands still."""

    folder: Path

    def __post_init__(self) -> None:
        self.clock = FakeClock(datetime(2026, 3, 1, tzinfo=timezone.utc))
        self.slurm = FakeScheduler(self.clock)
        self.settings = load_settings(
            {"HPCFLOW_HOME": str(self.folder / "home"), "SCRATCH": str(self.folder / "scratch")}
        )
        self.site = load_site("devcluster", search=search_path(self.settings.home.path))
        self.config = self.folder / "config.yaml"
        self.config.write_text(CONFIG)

    def launch(self) -> Launched:
        plan = make_plan(
            self.config, settings=self.settings, clock=self.clock, site=self.site, overrides=()
        )
        return launch(plan, settings=self.settings, scheduler=self.slurm, clock=self.clock)

    def resume(self, run_dir: RunDir, *, known_attempts: int = 0) -> Launched:
        return resume(
            run_dir,
            settings=self.settings,
            scheduler=self.slurm,
            site=self.site,
            clock=self.clock,
            known_attempts=known_attempts,
        )

    def cancel(self, run_dir: RunDir) -> str | None:
        return cancel(run_dir, settings=self.settings, scheduler=self.slurm, clock=self.clock)

    def state(self, run_id: str) -> tuple[RunState, str | None]:
        """The run's state and the reason of its last attempt, after a look at everything."""
        with open_ledger(self.settings.ledger_url) as ledger:
            refresh(
                ledger,
                self.settings.home,
                user=self.settings.user,
                connect=lambda _: self.slurm,
                clock=self.clock,
            )
            found = ledger.run(run_id)
            return found.run.state, found.attempts[-1].reason if found.attempts else None

    def alive(self) -> list[str]:
        return [job.job_id for job in self.slurm.queue() if job.state is not AttemptState.ENDED]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_run_whose_journal_was_purged_is_not_sent_beside_its_job(desk: Desk) -> None:
    launched = desk.launch()
    run_dir = RunDir(launched.run_dir)
    run_dir.journal.unlink()
    with pytest.raises(StorageError, match=r"journal of run .* is gone"):
        desk.resume(run_dir)
    shutil.rmtree(run_dir.attempt(1).path)
    with pytest.raises(StorageError, match=r"journal of run .* is gone"):
        desk.resume(run_dir, known_attempts=1)
    with pytest.raises(InputError, match=f"job {launched.job_id} .* is alive"):
        desk.resume(run_dir)  # the ledger was deleted, too
    assert desk.alive() == [launched.job_id]


def test_a_run_that_was_never_sent_is_sent(desk: Desk) -> None:
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    with pytest.raises(SchedulerUnavailable, match="controller") as caught:
        desk.launch()
    run_id = str(caught.value.next_action).rsplit(maxsplit=1)[-1]
    launched = desk.resume(RunDir((desk.settings.home.runs / run_id).readlink()), known_attempts=1)
    assert (launched.attempt, desk.alive()) == (1, [launched.job_id])


@pytest.mark.parametrize("what", ["journal", "everything"])
def test_a_purged_run_can_be_cancelled(desk: Desk, what: str) -> None:
    launched = desk.launch()
    run_dir = RunDir(launched.run_dir)
    if what == "journal":
        run_dir.journal.unlink()
    else:
        shutil.rmtree(run_dir.path)
    assert desk.cancel(run_dir) == launched.job_id
    assert desk.alive() == []
    assert desk.cancel(run_dir) is None


def test_cancel_ends_a_job_of_this_run_alone(desk: Desk) -> None:
    first, second = desk.launch(), desk.launch()
    desk.cancel(RunDir(first.run_dir))
    assert desk.alive() == [second.job_id]


def _launched_in_doubt(desk: Desk) -> tuple[RunDir, str]:
    """A run whose job exists while nobody could be asked about it."""
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(SubmissionInDoubt):
        desk.launch()
    run_id = next(desk.settings.home.runs.iterdir()).name
    return RunDir((desk.settings.home.runs / run_id).readlink()), run_id


def test_a_job_that_is_found_after_its_run_was_cancelled_is_ended(desk: Desk) -> None:
    run_dir, run_id = _launched_in_doubt(desk)
    with pytest.raises(SubmissionInDoubt):
        desk.cancel(run_dir)
    desk.slurm.is_controller_down = False
    assert len(desk.alive()) == 1
    desk.state(run_id)
    assert desk.alive() == []
    assert desk.state(run_id)[0] is RunState.CANCELLED


def test_a_job_that_is_found_when_its_run_is_resumed_goes_on(desk: Desk) -> None:
    run_dir, run_id = _launched_in_doubt(desk)
    with pytest.raises(SubmissionInDoubt):
        desk.cancel(run_dir)
    desk.slurm.is_controller_down = False
    launched = desk.resume(run_dir)
    assert desk.alive() == [launched.job_id]
    assert not run_dir.cancel.exists()
    assert desk.state(run_id)[0] is RunState.RUNNING


def test_the_reason_of_a_wait_is_the_present_one(desk: Desk) -> None:
    desk.slurm = FakeScheduler(desk.clock, starts_at_once=False)
    launched = desk.launch()
    said = []
    for reason in ("Priority", "Resources", "AssocGrpGRES", "AssocGrpGRES", "ReqNodeNotAvail"):
        desk.slurm.wait_for(launched.job_id, reason)
        said.append(desk.state(launched.run_id)[1])
    assert said == ["Priority", "Priority", "AssocGrpGRES", "AssocGrpGRES", "ReqNodeNotAvail"]
    journal = RunDir(launched.run_dir).journal.read_text()
    assert journal.count('"observed"') == 3, "what is not new is not written"
    desk.slurm.start(launched.job_id)
    assert desk.state(launched.run_id) == (RunState.RUNNING, None)
