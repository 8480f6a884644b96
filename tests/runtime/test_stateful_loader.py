"""A loader that keeps its place itself goes on at it on every rank, without reading again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler
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


class Order(Sampler[int]):  # type: ignore[misc]
    """0 to 39 in an order of its own, which keeps its place."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Iterator[int]:
        while self.given < 40:
            self.given += 1
            yield (self.given * 7) % 40
        self.given = 0

    def __len__(self) -> int:
        return 40

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


class Stream(IterableDataset[int]):  # type: ignore[misc]
    """The same, as a data set that is read from its beginning to its end."""

    def __init__(self) -> None:
        self.order = Order()

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def state_dict(self) -> dict[str, int]:
        return self.order.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.order.load_state_dict(state)


class Weighted(Numbers):
    """A data set with a state that is no place."""

    def state_dict(self) -> dict[str, int]:
        return {"weight": 3}

    def load_state_dict(self, state: dict[str, int]) -> None:
        assert state == {"weight": 3}


def with_sampler() -> tuple[Any, DataLoader[int]]:
    sampler = Order()
    return sampler, DataLoader(Numbers(), batch_size=4, sampler=sampler)


def with_batches_of_sampler() -> tuple[Any, DataLoader[int]]:
    sampler = Order()
    return sampler, DataLoader(Numbers(), batch_sampler=BatchSampler(sampler, 4, drop_last=False))


def with_stream() -> tuple[Any, DataLoader[int]]:
    stream = Stream()
    return stream, DataLoader(stream, batch_size=4)


def with_data_set() -> tuple[Any, DataLoader[int]]:
    data = Weighted()
    return data, DataLoader(data, batch_size=4)


@pytest.mark.parametrize(
    "make", [with_sampler, with_batches_of_sampler, with_stream, with_data_set]
)
def test_what_a_loader_is_made_of_may_keep_its_place(
    inside: RunFolder, make: Callable[[], tuple[Any, DataLoader[int]]]
) -> None:
    """Not a batch is lost, nor given out twice."""

    def train(until: int) -> list[list[int]]:
        data, loader = make()
        run, seen = runtime.start(), []
        run.restore(data=data)
        for _ in run.epochs(2):
            for batch in run.batches(loader):
                seen.append(batch.tolist())
                wait_for_write(run)
                if run.train_step == until:
                    return seen
        run.finish()
        return seen

    before, after = train(until=7), train(until=0)

    done = inside.events("train_started")[-1]["train_step"]
    assert done == 4
    given = before[:done] + after
    assert sorted(chain(*given[:10])) == sorted(chain(*given[10:])) == list(range(40))
    assert given[:10] == given[10:]


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
