"""The batches of an epoch are given out once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader

from hpcflow import runtime


def test_batches_that_are_given_out_twice_are_an_error() -> None:
    """Nothing of them would be trained, and the training would seem to succeed."""
    run = runtime.start()
    run.restore()
    for _ in run.batches([1, 2]):
        pass
    with pytest.raises(RuntimeError, match=r"run\.epochs"):
        list(run.batches([1, 2]))


def test_a_stream_that_does_not_know_its_length_gives_its_batches() -> None:
    """torch's DataLoader has a length, and raises when it is asked for that of a stream."""

    class Stream(torch.utils.data.IterableDataset[int]):  # type: ignore[misc]  # not typed here
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    run = runtime.start()
    run.restore()
    seen = [batch.tolist() for batch in run.batches(DataLoader(Stream(), batch_size=2))]
    assert seen == [[0, 1], [2, 3], [4]]


def test_an_epoch_gives_its_batches_out_once() -> None:
    run = runtime.start()
    run.restore()
    seen = []
    for _ in run.epochs(2):
        seen += list(run.batches([1, 2]))
        with pytest.raises(RuntimeError, match="iterate over its loader"):
            list(run.batches([3]))
    assert seen == [1, 2, 1, 2]
