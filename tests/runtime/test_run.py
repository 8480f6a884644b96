"""What a training script can do with a run, in one process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpcflow import runtime
from hpcflow.runtime.data_order import Position
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.notice import FLAG, NOTHING, USR2, Notice
from hpcflow.runtime.ranks import OtherRanks
from hpcflow.runtime.schedule import Schedule
from hpcflow.testing.clock import FakeClock
from tests.runtime.harness import RunFolder
from tests.runtime.program import wait_for_write


@pytest.fixture
def inside(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """This process as a program inside a job."""
    for name, value in folder.environ().items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture(autouse=True)
def signals_as_before() -> Any:
    """A run that does not finish keeps its signal handlers, as a dying process may."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Folder:
    """An object that writes itself into a folder, as other frameworks than torch do."""

    def __init__(self, value: str) -> None:
        self.value = value

    def save(self, folder: Path) -> None:
        (folder / "value.txt").write_text(self.value)

    def load(self, folder: Path) -> None:
        self.value = (folder / "value.txt").read_text()


def test_outside_of_hpcflow_a_script_just_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = runtime.start({"epochs": 3})
    before = signal.getsignal(signal.SIGTERM)

    assert run.restore(model=torch.nn.Linear(1, 1)) == 0
    seen = [(e, b) for e in run.epochs(run.params.epochs) for b in run.batches("xy")]
    run.log(loss=1.0)
    run.finish(accuracy=1.0)

    assert seen == [(e, b) for e in range(3) for b in "xy"]
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before
    assert capfd.readouterr() == ("", "")


def test_a_checkpoint_folder_is_enough_to_try_it_at_a_desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", "checkpoints")
    run = runtime.start()
    run.restore()

    with pytest.raises(SystemExit) as left:
        for train_step in run.train_steps(10):
            if train_step == 3:
                os.kill(os.getpid(), signal.SIGUSR2)

    assert left.value.code == 75
    assert (tmp_path / "checkpoints/000000003/manifest.json").exists()
    again = runtime.start()
    assert again.restore() == 3
    assert list(again.train_steps(5)) == [4, 5]
    again.finish()
    assert (tmp_path / "checkpoints/000000005/manifest.json").exists()


def test_a_run_directory_that_is_deleted_is_not_made_anew(
    inside: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    """What has no journal is no run, and nobody would ever go on from there."""
    run = runtime.start()
    run.restore()

    with pytest.raises(CheckpointError, match="No such file or directory"):
        for train_step in run.train_steps(3):
            if train_step == 2:
                shutil.rmtree(inside.path)
            run.log(loss=1.0)
        run.finish()

    assert "no checkpoint at train step 3, training continues" in capfd.readouterr().err
    assert not inside.path.exists()


@pytest.mark.usefixtures("inside")
def test_every_kind_of_object_comes_back() -> None:
    first = runtime.start()
    model, notes, other = torch.nn.Linear(2, 2), {"best": 0.1}, Folder("before")
    first.restore(model=model, notes=notes, other=other)
    for _ in first.train_steps(1):
        notes["best"], other.value = 0.9, "after"
        with torch.no_grad():
            model.weight.fill_(7)
    first.finish()

    again = runtime.start()
    model, notes, other = torch.nn.Linear(2, 2), {"worst": 1.0}, Folder("nothing")
    assert again.restore(model=model, notes=notes, other=other) == 1

    assert notes == {"best": 0.9}
    assert other.value == "after"
    assert model.weight.tolist() == [[7, 7], [7, 7]]


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("obj", [object(), 3, [1], {1: "a"}, {"a": (1, 2)}, {"a": object()}])
def test_what_cannot_be_saved_is_refused_before_the_training(obj: object) -> None:
    with pytest.raises(TypeError):
        runtime.start().restore(thing=obj)


@pytest.mark.usefixtures("inside")
def test_a_script_that_would_save_nothing_is_told_so() -> None:
    with pytest.raises(RuntimeError, match=r"call run\.restore\(model=model"):
        next(iter(runtime.start().train_steps(3)))


@pytest.mark.usefixtures("inside")
def test_restoring_inside_the_loop_is_refused() -> None:
    run = runtime.start()
    run.restore()
    for _ in run.train_steps(1):
        with pytest.raises(RuntimeError, match="once, before the training loop"):
            run.restore()


@pytest.mark.usefixtures("inside")
def test_params_come_from_the_run_and_defaults_from_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "params.json"
    file.write_text('{"lr": 0.1, "model": {"hidden": 8}}')
    monkeypatch.setenv("HPCFLOW_PARAMS", str(file))

    params = runtime.start({"lr": 1.0, "epochs": 3}).params

    assert (params.lr, params.epochs, params["model"]["hidden"]) == (0.1, 3, 8)
    assert runtime.params == {"lr": 0.1, "model": {"hidden": 8}}
    with pytest.raises(AttributeError, match="no parameter 'epoch': did you mean epochs"):
        _ = params.epoch


def test_an_environment_that_makes_no_sense_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_INTERVAL_S", "soon")
    with pytest.raises(ValueError, match="HPCFLOW_CHECKPOINT_INTERVAL_S='soon'"):
        runtime.start()


def test_ranks_that_do_not_know_each_other_are_told_what_to_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="init_process_group"):
        runtime.start()


def test_early_stopping_saves_where_it_stopped(inside: RunFolder) -> None:
    run = runtime.start()
    run.restore()
    for train_step in run.train_steps(100):
        if train_step == 7:
            break
    run.finish(accuracy=0.5)

    assert inside.complete() == [7]
    assert inside.events("finished")[0]["train_step"] == 7


def test_the_notice_of_a_run_that_has_finished_is_for_others(inside: RunFolder) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run = runtime.start()
    run.restore()
    assert signal.getsignal(signal.SIGTERM) is not before
    run.finish()

    assert signal.getsignal(signal.SIGTERM) is before
    assert inside.events("finished")[0]["train_step"] == 0


def test_finally_blocks_run_when_the_notice_comes(inside: RunFolder) -> None:
    run = runtime.start()
    run.restore()
    cleaned = False

    with pytest.raises(SystemExit):
        try:
            for _ in run.train_steps(10):
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            cleaned = True

    assert cleaned
    assert inside.resubmit.exists()


@pytest.mark.usefixtures("inside")
def test_a_training_in_two_phases_resumes_in_the_second() -> None:
    first = runtime.start()
    first.restore()
    assert list(first.train_steps(3)) == [1, 2, 3]
    with pytest.raises(SystemExit):
        for train_step in first.train_steps(8):
            if train_step == 5:
                os.kill(os.getpid(), signal.SIGUSR2)

    again = runtime.start()
    again.restore()

    assert list(again.train_steps(3)) == []
    assert list(again.train_steps(8)) == [6, 7, 8]


def test_ranks_of_another_framework_agree_by_their_own_means(inside: RunFolder) -> None:
    """Two threads stand for two processes of a framework that can take a maximum."""
    barrier, values = threading.Barrier(2), [0, 0]
    folders: list[int | str | None] = []

    def rank(index: int) -> None:
        def maximum(value: int) -> int:
            values[index] = value
            barrier.wait(120)
            result = max(values)
            barrier.wait(120)
            return result

        from hpcflow.runtime.job import job_from
        from hpcflow.runtime.parameters import Params
        from hpcflow.runtime.run import Run

        job = job_from({**os.environ, "RANK": str(index), "WORLD_SIZE": "2"})
        run = Run(job, Params(), OtherRanks(index, 2, maximum))
        run.restore()
        try:
            for train_step in run.train_steps(10):
                if (index, train_step) == (0, 4):
                    Path(os.environ["HPCFLOW_NOTICE"]).touch()
                    run._notice._polled_at = None
        except SystemExit as left:
            folders.append(left.code)

    threads = [threading.Thread(target=rank, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert folders == [75, 75]
    assert inside.complete() == [4]
    assert len(list(inside.checkpoint(4).glob("rank-*"))) == 2


def test_a_checkpoint_is_due_by_time_and_by_count() -> None:
    clock = FakeClock()
    schedule = Schedule(60, 100, clock.monotonic)

    assert not schedule.is_due_by_time()
    clock.sleep(60)
    assert schedule.is_due_by_time()
    assert not schedule.is_due_by_time(), "asked for already, and on its way"
    schedule.restart()
    clock.sleep(59)
    assert not schedule.is_due_by_time()
    assert [step for step in range(1, 301) if schedule.is_due_by_count(step)] == [100, 200, 300]
    assert not Schedule(None, None).is_due_by_time()


def test_the_flag_is_looked_for_once_a_second(tmp_path: Path) -> None:
    clock, flag = FakeClock(), tmp_path / "notice"
    notice = Notice(flag, clock.monotonic)

    assert notice.seen() == NOTHING
    flag.touch()
    clock.sleep(0.9)
    assert notice.seen() == NOTHING
    clock.sleep(0.1)
    assert notice.seen() == FLAG
    flag.unlink()
    assert notice.seen() == FLAG


def test_outside_the_main_thread_the_flag_still_counts(tmp_path: Path) -> None:
    notice = Notice(tmp_path)
    thread = threading.Thread(target=notice.listen)
    thread.start()
    thread.join()
    assert notice.seen() == FLAG
    assert USR2 > FLAG


def test_a_place_in_the_data_moves_with_the_number_of_batches() -> None:
    assert Position(2, 30, 40).among(20) == Position(2, 15, 20)
    assert Position(2, 30, 40).among(40) == Position(2, 30, 40)
    assert Position(2, 30, 40).as_epochs == 2.75
    assert Position(1, 3, None).as_epochs == 1.0


def test_the_interval_saves_while_training(
    inside: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_INTERVAL_S", "60")
    run = runtime.start()
    clock = FakeClock()
    run._schedule = Schedule(60, None, clock.monotonic)
    run.restore()
    for _ in run.train_steps(200):
        clock.sleep(1)
        wait_for_write(run)
    run.finish()

    assert inside.complete() == [60, 120, 180, 200]
    manifest = json.loads((inside.checkpoint(60) / "manifest.json").read_text())
    assert manifest["world_size"] == 1
    assert manifest["run_id"] == "digits-20260101-aaaaaaaa"


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, np.uint8, torch.tensor])
def test_counts_of_any_library_count(inside: RunFolder, kind: Callable[[int], Any]) -> None:
    run = runtime.start()
    run.restore()
    assert list(run.train_steps(kind(3))) == [1, 2, 3]
    run.finish(loss=kind(2), largest=10**400)
    (began,), (finished,) = inside.events("train_started"), inside.events("finished")
    assert began["total_train_steps"] == 3
    assert finished["metrics"] == {"loss": 2.0, "largest": None}


@pytest.mark.parametrize("kind", [int, np.int64, np.int8, np.uint8, torch.tensor])
def test_epochs_of_any_library_count(inside: RunFolder, kind: Callable[[int], Any]) -> None:
    """NumPy's small ones cannot hold the number of all train steps."""
    run = runtime.start()
    run.restore()
    loader = [*range(300)]
    assert [epoch for epoch in run.epochs(kind(2)) for _ in run.batches(loader)][::300] == [0, 1]
    run.log(loss=1.0)
    run.finish()
    assert inside.events("train_started")[0]["total_train_steps"] == 600
    assert inside.events("progress")[-1]["total_train_steps"] == 600
