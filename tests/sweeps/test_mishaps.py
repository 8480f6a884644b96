"""What goes wrong around a sweep: files lost, damaged, late; clocks; others in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.model.journal import Held, Released
from hpcflow.model.sweep_records import Asked, GoOn, StopRequested
from hpcflow.storage import journal
from hpcflow.storage.sweeps import append, read_journal, read_sweep
from hpcflow.sweeps import closing
from hpcflow.sweeps.state import SweepState
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.sweeps.searched import Searched

NO_RETRY = "retry: {failures: 0}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    desk = Searched(tmp_path)
    desk.config.write_text(desk.config.read_text() + NO_RETRY)
    return desk


def test_a_run_directory_that_is_purged_is_a_failed_trial(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.reports(0, 50, 0.5)
    desk.round()
    job = desk.job(0)
    shutil.rmtree(desk.run_dir(0).path)
    desk.slurm.end(job, "NODE_FAIL")
    for _ in range(3):
        desk.round()
    assert desk.states()[0] == "failed"
    assert desk.trial(0).points()[50] == 0.5, "what it had reported is known"


def test_jobs_wait_in_the_queue_and_count_as_under_way(desk: Searched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    desk.begin()
    desk.round()
    desk.round()
    assert desk.running() == [0, 1, 2, 3]


def test_what_an_earlier_attempt_said_is_older_whenever_it_is_read(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.reports(0, 30, 0.30)
    desk.round()
    desk.reports(0, 30, 0.31)  # says nothing new of its progress
    desk.end(desk.job(0), "PREEMPTED", checkpoint=5)
    desk.round()
    desk.reports(0, 60, 0.6)
    desk.event(0, "finished", train_step=100, metrics={"accuracy": 0.95})
    desk.round()
    desk.reports(0, 30, 0.32, attempt=1)  # a file system shows it late
    desk.slurm.end(desk.job(0), "COMPLETED", exit_code=0)
    desk.round()
    assert desk.trial(0).values == [0.95]


def test_all_repeats_must_report(desk: Searched) -> None:
    desk.begin("repeats: 2\nparallel: 1\nbudget: {trials: 1}")
    desk.round()
    desk.completes(0, 0.9)
    desk.slurm.end(desk.job(0, 1), "COMPLETED", exit_code=0)
    assert desk.round().state is SweepState.HALTED
    assert desk.states() == ["failed"]


def test_a_run_that_somebody_holds_is_not_sent(desk: Searched) -> None:
    desk.begin("parallel: 1")
    desk.slurm.faults.append(Fault.DELAYED)
    desk.round()
    journal.append(desk.run_dir(0), Held(at=desk.clock.now(), by="ada"))
    for _ in range(3):
        desk.clock.advance(600)
        desk.round()
    assert desk.alive() == []
    journal.append(desk.run_dir(0), Released(at=desk.clock.now(), by="ada"))
    desk.round()
    assert len(desk.alive()) == 1


def test_a_grid_that_was_stopped_with_its_trials_has_all_of_them_later(desk: Searched) -> None:
    desk.begin("sampler: grid\nbudget: {}\nparallel: 2\nspace: {a: {choices: [w, x, y, z]}}\n")
    desk.round()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada", cancel=True)])
    for _ in range(2):
        desk.round()
    assert desk.progress.state is SweepState.STOPPED
    desk.resume_sweep()
    while desk.round().state is not SweepState.OVER:
        for number in desk.running():
            desk.completes(number, 0.5)
    done = [trial.params["a"] for trial in desk.progress.trials if not trial.is_void]
    assert sorted(done) == ["w", "x", "y", "z"]


def test_what_was_asked_for_and_not_made_is_not_begun_after_a_stop(desk: Searched) -> None:
    desk.begin("parallel: 2")
    desk.round()
    number = len(desk.progress.trials)
    asked = Asked(
        at=desk.clock.now(), trial=number, params={"lr": 0.5}, runs=["x-20260301-aaaaaaaa"]
    )
    append(desk.sweep_dir, [asked, StopRequested(at=desk.clock.now(), by="ada")])
    desk.round()
    assert len(desk.alive()) == 2
    assert desk.states()[number] == "failed"


def test_who_lets_it_go_on_from_a_slow_clock_is_heard(desk: Searched) -> None:
    desk.begin()
    desk.round()
    for number in range(3):
        desk.slurm.end(desk.job(number), "FAILED", exit_code=1)
    assert desk.round().state is SweepState.HALTED
    desk.clock.advance(-100)
    desk.resume_sweep()
    desk.clock.advance(100)
    assert desk.round().state is SweepState.RUNNING


def test_what_others_write_in_the_middle_of_a_round_is_not_written_over(
    desk: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin("budget: {trials: 1}")
    desk.round()
    desk.completes(0, 0.5)

    def resumed(*_: object) -> list[object]:
        monkeypatch.setattr(closing, "failures_in_a_row", lambda _: [])
        record = GoOn(at=desk.clock.now(), by="ada", budget={"trials": 3})
        append(desk.sweep_dir, [record])
        return []

    monkeypatch.setattr(closing, "failures_in_a_row", resumed)
    assert desk.round().state is not SweepState.OVER
    assert desk.round().asked == [1, 2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"trial": 0, "params"', '"trial": 7, "params"', 1),
        lambda text: text.replace('"record": "asked"', '"record": "axked"', 1),
    ],
)
def test_a_journal_that_lacks_a_trial_is_an_error_and_nothing_is_asked_again(
    desk: Searched, damage: Callable[[str], str]
) -> None:
    desk.begin()
    desk.round()
    path = desk.sweep_dir.journal
    path.write_text(damage(path.read_text()))
    report = desk.round()
    assert "journal is damaged" in report.problems[0]
    assert len(desk.alive()) == 4


def test_what_one_sweep_holds_up_holds_up_no_other(desk: Searched) -> None:
    desk.begin()
    broken = desk.sweep_dir
    text = broken.sweep_json.read_text().replace('"parallel": 4', '"parallel": 0')
    broken.sweep_json.write_text(text)
    desk.begin("name: other")
    assert desk.round().asked == [0, 1, 2, 3]
    with pytest.raises(StorageError, match="is damaged"):
        read_sweep(broken)


def test_a_journal_that_others_can_write_is_not_believed(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.sweep_dir.journal.chmod(0o666)
    with pytest.raises(StorageError, match="others may write in it"):
        read_journal(desk.sweep_dir)
