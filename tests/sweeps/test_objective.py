"""A sweep from Python: any function as the program of real trials on this machine."""

from __future__ import annotations

import hashlib
import pickle
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpcflow
from hpcflow.clock import SystemClock
from hpcflow.errors import HpcflowError, InputError
from hpcflow.model.sweep_records import Halted
from hpcflow.settings import load_settings
from hpcflow.storage.sweeps import SweepDir, append, find_sweep, list_sweeps, read_sweep
from hpcflow.sweeps.api import Best, StartedSweep, sweep
from hpcflow.sweeps.call import main as call
from hpcflow.sweeps.state import SweepState
from hpcflow.sweeps.view import look

LR = {"lr": {"low": 0.0, "high": 1.0}}
TWO = {"lr": {"choices": [0.25, 0.75]}}


@pytest.fixture(autouse=True)
def at_home(home: Path, weird_tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    monkeypatch.chdir(weird_tmp_path)
    return home


def started(function: Callable[..., Any], space: dict[str, Any] = TWO, **more: Any) -> StartedSweep:
    """A grid, two at a time, unless the test wants it otherwise."""
    given: dict[str, Any] = {"direction": "minimize", "sampler": "grid", "parallel": 2} | more
    return sweep(function, space, **given)


def directory(search: StartedSweep) -> SweepDir:
    return find_sweep(load_settings().home, search.sweep_id)


# --- to the end ---------------------------------------------------------------------------------


def test_a_closure_is_called_in_jobs_until_the_sweep_is_over() -> None:
    offset = 2.0
    search = hpcflow.sweep(
        lambda lr: abs(lr - 0.3) + offset, LR, direction="minimize", trials=3, parallel=3
    )
    assert isinstance(search, StartedSweep)
    assert len(search.trials()) == 3, "they are sent at once"
    assert search.best is None or search.best.value >= 2
    search.wait(poll_s=0.2)
    values = {trial.params["lr"]: trial.values["value"] for trial in search.trials()}
    assert values == {lr: pytest.approx(abs(lr - 0.3) + 2) for lr in values}
    assert search.best == Best(*min(
        (({"lr": lr}, value) for lr, value in values.items()), key=lambda pair: pair[1]
    ))  # fmt: skip
    assert search.sweep_id.startswith("lambda-")


def test_a_function_of_a_module_beside_is_found_in_the_job(
    weird_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = weird_tmp_path / "library"
    folder.mkdir()
    (folder / "losses_of_mine.py").write_text("def loss(lr, run):\n    run.log(loss=lr)\n")
    monkeypatch.syspath_prepend(folder)
    import losses_of_mine  # type: ignore[import-not-found]

    search = started(losses_of_mine.loss, metric="loss")
    search.wait(poll_s=0.2)
    assert search.best == Best({"lr": 0.25}, 0.25)
    assert search.sweep_id.startswith("loss-")


def test_several_objectives_have_no_single_best_trial() -> None:
    search = started(
        lambda lr: (lr, 1 - lr), metric=["loss", "cost"], direction=["minimize", "minimize"]
    )
    search.wait(poll_s=0.2)
    assert sorted(trial.values["cost"] for trial in search.trials()) == [0.25, 0.75]
    with pytest.raises(InputError, match="2 objectives, so no single trial is the best"):
        _ = search.best


def test_what_is_told_of_it_holds_for_its_jobs_and_is_said_in_one_place() -> None:
    search = started(
        lambda lr: lr, name="mine", resources={"time_limit": "7m"}, site="local", sampler="random",
        trials=1, pruner={"type": "median", "warmup": 10},
    )  # fmt: skip
    sweep = read_sweep(directory(search))
    assert sweep.base.resources.time_limit_min == 7
    assert (sweep.spec.name, sweep.spec.budget.trials) == ("mine", 1)
    assert sweep.spec.pruner.warmup == 10
    with pytest.raises(InputError, match="has this name and is active"):
        started(lambda lr: lr, name="mine")


def test_what_no_trial_can_do_ends_the_wait_and_says_what_to_do() -> None:
    search = started(lambda lr: {"lost": lr}, metric="loss")
    append(
        directory(search),
        [Halted(at=SystemClock().now(), why="it never works", next_action="correct it")],
    )
    with pytest.raises(HpcflowError, match="it never works") as caught:
        search.wait(poll_s=0.2)
    assert caught.value.next_action == "correct it"


def test_stopped_it_asks_for_no_more_trials() -> None:
    search = started(lambda lr: lr, LR, sampler="random", trials=50, parallel=1)
    search.stop()
    search.wait(poll_s=0.2)
    assert [trial.state for trial in search.trials()] == ["complete"]
    search.tick()
    assert len(search.trials()) == 1


def test_to_stop_what_is_over_changes_nothing() -> None:
    search = started(lambda lr: lr)
    search.wait(poll_s=0.2)
    search.stop()
    assert look(directory(search))[1].state is SweepState.OVER


# --- the pickle ---------------------------------------------------------------------------------


def test_the_pickle_is_for_its_owner_alone_and_for_this_sweep() -> None:
    search = started(lambda lr: lr)
    path = directory(search).path / "function.pkl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    command = read_sweep(directory(search)).base.command
    assert command is not None
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (command[-4:-2], command[-1]) == ([str(path), checksum], "value")
    search.wait(poll_s=0.2)


class Harmful:
    """What runs as soon as somebody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harmed"),)


def test_nothing_is_unpickled_that_the_sweep_did_not_write(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, content = tmp_path / "function.pkl", pickle.dumps(Harmful())
    path.write_bytes(content)
    assert call([str(path), hashlib.sha256(b"another one").hexdigest(), "", "value"]) == 1
    assert not Path("harmed").exists()
    assert "was changed after the sweep started" in capfd.readouterr().err
    with pytest.raises(AttributeError):  # it is harmful indeed
        call([str(path), hashlib.sha256(content).hexdigest(), "", "value"])
    assert Path("harmed").exists()


def test_nothing_is_unpickled_where_others_can_create_modules(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, content = tmp_path / "function.pkl", pickle.dumps(Harmful())
    path.write_bytes(content)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(SystemExit):
        call([str(path), hashlib.sha256(content).hexdigest(), f"{tmp_path}:{shared}", "value"])
    assert not Path("harmed").exists()
    assert f"every user can create files in {shared} (mode 1777)" in capfd.readouterr().err


def test_a_pickle_that_is_gone_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call([str(tmp_path / "gone.pkl"), "0" * 64, "", "value"]) == 1
    assert "cannot read the function of this sweep" in capfd.readouterr().err


# --- what was given wrongly ---------------------------------------------------------------------


def refusal(function: Any, space: dict[str, Any] = TWO, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        started(function, space, **more)
    assert caught.value.next_action
    assert list_sweeps(load_settings().home) == [], "nothing was created"
    return str(caught.value)


def test_a_function_that_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()
    told = refusal(lambda lr: lock.locked() and lr)
    assert "this function cannot be sent to a job: TypeError: cannot pickle" in told


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_of_modules_in_which_others_can_create_files_is_refused(
    weird_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.syspath_prepend(weird_tmp_path)
    weird_tmp_path.chmod(mode)
    told = refusal(lambda lr: lr)
    assert f"every user can create files in {weird_tmp_path} (mode {mode:04o})" in told


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (3, "not a function with known parameters"),
        (lambda lr, depth: lr + depth, "<lambda>() needs depth, which no trial has"),
        (lambda rate=1: rate, "<lambda>() does not take lr, which varies"),
    ],
)
def test_a_function_that_no_trial_could_call_is_refused(function: Any, said: str) -> None:
    assert said in refusal(function)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"space": {"lr": {"low": 1}}}, "hpcflow.sweep(), space.lr: `high` is missing"),
        ({"direction": "up"}, "hpcflow.sweep(), objective.direction: expected 'minimize' or"),
        ({"direction": ["minimize"] * 2}, "the numbers of metrics and directions differ: 1 and 2"),
        ({"sampler": "bayes"}, "hpcflow.sweep(), sampler: expected one of grid"),
        ({"parallel": 0}, "hpcflow.sweep(), parallel: must be 1 or more"),
        ({"sampler": "tpe"}, "hpcflow.sweep(), budget: needs a limit"),
        ({"resources": {"gpus": 1}}, "hpcflow.sweep(), resources.gpus: unknown key"),
        ({"name": "a b"}, "hpcflow.sweep(), name: not a name"),
        ({"site": "nowhere"}, "nowhere"),
    ],
)
def test_what_is_wrong_around_it_is_told(more: dict[str, Any], said: str) -> None:
    assert said in refusal(lambda lr: lr, **more)
