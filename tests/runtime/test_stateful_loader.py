"""A loader that keeps its place itself goes on at it on every rank, without reading again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import chain

import pytest
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from hpcflow import runtime
from hpcflow.runtime.manifest import CheckpointError
from tests.runtime.harness import RunFolder, differing, run, start, weights
from tests.runtime.program import BATCHES, EPOCHS, wait_for_write

#: Of torchdata 0.11 under torch 2.13.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

LAST = EPOCHS * BATCHES
EVERY = "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS"


class Numbers(Dataset[int]):  # type: ignore[misc]
    """0 to 39, and which of them were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index


@pytest.fixture
def inside(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    """This process as a program inside a job that saves after every fourth train step."""
    for name, value in {**folder.environ(), EVERY: "4"}.items():
        monkeypatch.setenv(name, value)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield folder
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("at", [10, 14])
@pytest.mark.parametrize(
    ("world_size", "workers", "generator"), [(1, 0, ""), (1, 2, ""), (1, 0, "own"), (2, 0, "")]
)
def test_a_killed_training_goes_on_bit_for_bit(
    folder: RunFolder, world_size: int, workers: int, generator: str, at: int
) -> None:
    folder.variables = {"STATEFUL": "1", "WORKERS": str(workers), "GENERATOR": generator}
    whole = RunFolder(folder.path / "whole", 1, folder.variables)
    assert run(whole, world_size) == [0] * world_size

    killed = start(folder, world_size, HURT=f"0:{at + 5}:KILL", PATIENT=1, **{EVERY: at})
    assert killed.exit_codes()[0] == -9
    assert folder.complete() == [at]
    assert run(folder, world_size) == [0] * world_size

    assert folder.events("train_started")[-1]["train_step"] == at
    assert differing(weights(folder, LAST), weights(whole, LAST)) == []


def batches(loader: StatefulDataLoader[int], until: int) -> list[list[int]]:
    """What a training is given that ends in the middle, or after three epochs."""
    run, seen = runtime.start(), []
    run.restore(loader=loader)
    for _ in run.epochs(3):
        for batch in run.batches(loader):
            seen.append(batch.tolist())
            wait_for_write(run)
            if run.train_step == until:
                return seen
    run.finish()
    return seen


def test_what_was_read_is_not_read_again(inside: RunFolder) -> None:
    first, second = Numbers(), Numbers()

    before = batches(StatefulDataLoader(first, batch_size=4, shuffle=True), until=17)
    after = batches(StatefulDataLoader(second, batch_size=4, shuffle=True), until=0)

    done = inside.events("train_started")[-1]["train_step"]
    assert 0 < done < 17
    assert second.read == list(chain(*after)), "read and given to nobody"
    given = before[:done] + after
    epochs = [list(chain(*given[at : at + 10])) for at in (0, 10, 20)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(40))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_other_ranks_go_on_from_the_same_place_by_reading_again(folder: RunFolder) -> None:
    folder.variables = {"STATEFUL": "1"}
    run(folder, 2, HURT="0:17:KILL", PATIENT=1, **{EVERY: 12})

    training = start(folder, 4)

    assert training.exit_codes() == [0] * 4, training.log()
    assert folder.events("train_started")[-1]["train_step"] == 12


def test_a_loader_that_was_not_saved_is_missed(
    inside: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = runtime.start()
    training.restore()
    for _ in training.train_steps(3):
        pass
    monkeypatch.setenv("HPCFLOW_RESUME_FROM", str(inside.checkpoint(3)))

    with pytest.raises(CheckpointError, match=r"has no loader\.rank-00000\.pt; it has manifest"):
        runtime.start().restore(loader=StatefulDataLoader(Numbers()))
