"""What is saved can be loaded without executing anything, or the training is told at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hpcflow import runtime
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.plain import require_plain
from tests.runtime.harness import RunFolder
from tests.runtime.program import wait_for_write


@pytest.fixture
def inside(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    """This process as a program inside a job that saves after every second train step."""
    variables = {**folder.environ(), "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": "2"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield folder
    for number, handler in before.items():
        signal.signal(number, handler)


class Holder:
    """An object of the program's own, with any state."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state["state"]


def optimizer_with_numbers_of_numpy() -> torch.optim.Optimizer:
    model = torch.nn.Linear(2, 2)
    rates = np.geomspace(1e-3, 1e-1, 3)
    return torch.optim.AdamW(
        model.parameters(),
        lr=rates[1],
        betas=(np.float64(0.5), 0.99),
        weight_decay=np.float32(0.25),
    )


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("train_steps", [1, 3], ids=["saved in place", "saved in the background"])
def test_numbers_of_numpy_come_back_as_numbers(train_steps: int) -> None:
    optimizer, extra = optimizer_with_numbers_of_numpy(), Holder([np.int64(1 << 40), np.True_])
    run = runtime.start()
    run.restore(optimizer=optimizer, extra=extra)
    for _ in run.train_steps(train_steps):
        pass
    run.finish()
    assert isinstance(optimizer.param_groups[0]["lr"], np.float64), "the program's own stay"

    again, more = optimizer_with_numbers_of_numpy(), Holder(None)
    again.param_groups[0].update(lr=0.0, betas=(), weight_decay=0.0)
    assert runtime.start().restore(optimizer=again, extra=more) == train_steps

    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert again.param_groups[0]["betas"] == (0.5, 0.99)
    assert again.param_groups[0]["weight_decay"] == 0.25
    assert more.state == [1 << 40, True]


@pytest.mark.parametrize(
    "value", [np.arange(3), np.longdouble(1), Holder(1)], ids=["array", "long double", "own class"]
)
@pytest.mark.parametrize("train_steps", [1, 3], ids=["saved in place", "saved in the background"])
def test_what_could_never_be_loaded_again_ends_the_training_at_its_first_save(
    inside: RunFolder, value: object, train_steps: int
) -> None:
    run = runtime.start()
    run.restore(extra=Holder({"a": [1, value]}))
    with pytest.raises(TypeError, match=r"extra\.pt could not be loaded again: .*" + kind(value)):
        for _ in run.train_steps(train_steps):
            pass
    assert inside.complete() == []


class NamedTensor(torch.Tensor):  # type: ignore[misc]
    """A kind of tensor that torch does not load again."""


LATER: dict[str, tuple[str, Any]] = {
    "array": ("extra", np.arange(3)),
    "own class": ("extra", Holder(1)),
    "own kind of tensor": ("extra", torch.zeros(2).as_subclass(NamedTensor)),
    "lock": ("extra", threading.Lock()),
    "tensor in a dict": ("count", torch.zeros(2)),
}


@pytest.mark.parametrize("how", LATER)
def test_what_comes_later_and_could_not_be_loaded_costs_the_checkpoint_alone(
    inside: RunFolder, how: str
) -> None:
    """As an array does that a metric keeps from its first evaluation on."""
    name, value = LATER[how]
    extra, count = Holder(torch.ones(3)), {"state": 1}
    run = runtime.start()
    run.restore(extra=extra, count=count)

    def change(new: Any) -> None:
        if name == "extra":
            extra.state = new
        else:
            count["state"] = new

    for train_step in run.train_steps(7):
        change(value if train_step in (3, 4, 7) else 1)
        wait_for_write(run)
    assert inside.complete() == [2, 6]
    failed = inside.events("checkpoint_failed")
    assert [event["train_step"] for event in failed] == [4, 7]
    assert failed[0]["why"].startswith(name)
    with pytest.raises(CheckpointError, match=name):
        run.finish()


def test_a_kind_of_tensor_that_was_loaded_once_is_not_written_each_time_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be written whole, while the training waits."""
    sizes = []
    save = torch.save

    def measured(state: Any, file: Any) -> None:
        save(state, file)
        sizes.append(file.tell())

    monkeypatch.setattr(torch, "save", measured)
    proven: set[type] = set()
    with torch.serialization.safe_globals([NamedTensor]):
        for size in (1, 1 << 20):
            tensor = torch.zeros(size).as_subclass(NamedTensor)
            require_plain("extra.pt", {"a": tensor}, proven)
    assert len(sizes) == 2
    assert max(sizes) < 10_000


def kind(value: object) -> str:
    return "Holder" if isinstance(value, Holder) else "numpy"
