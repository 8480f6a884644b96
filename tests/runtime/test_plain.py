"""What is saved can be loaded without executing anything, or the training is told at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hpcflow import runtime
from tests.runtime.harness import RunFolder


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


def kind(value: object) -> str:
    return "Holder" if isinstance(value, Holder) else "numpy"
