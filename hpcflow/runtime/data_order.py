"""Going on in the middle of an epoch, so that not one batch and not one random number differs.

The state of a rank in a checkpoint, as JSON values::

    {"position": {"epoch": 2, "batch": 17, "batches": 40},
     "rng": …, "generator": …,                            at the end of the train step
     "epoch_began": {"rng": …, "generator": …} or null}   when epoch 2 began

To go on, the random numbers are put back to where the epoch began, the loader is opened as it was
then, 17 batches are read and dropped, and the random numbers are put to where the train step ended.
A loader that keeps its place itself, as torchdata's does, or whose sampler or stream does, was put
there: nothing is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Sized
from dataclasses import replace
from typing import Any

from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.position import Position, position_from
from hpcflow.runtime.rng import capture_generator, capture_rng, restore_generator, restore_rng


class DataOrder:
    """Where in the data this rank is, and the random numbers that belong to it."""

    def __init__(self) -> None:
        self.position = Position()
        self.is_used = False
        self._began: dict[str, Any] | None = None
        self._is_opened = False
        self._loader: Any = None
        self._to_restore: dict[str, Any] | None = None
        self._placed: list[Any] = []

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of this rank."""
        return {
            "position": self.position.as_json() if self.is_used else None,
            "rng": capture_rng(),
            "generator": capture_generator(self._loader),
            "epoch_began": self._began,
        }

    def resume(self, shared: dict[str, Any], own: dict[str, Any] | None, placed: list[Any]) -> None:
        """Take over the place in the data that all ranks share, and this rank's random numbers.

        They are put back when the loop begins: what the program does before it is not disturbed.

        Args:
            shared: the state of rank 0.
            own: the state of this rank; None where it left none.
            placed: loaders, or what they read, that are at their place in the data already.

        Raises:
            CheckpointError: this is not what :meth:`state` gave.
        """
        try:
            if shared.get("position") is not None:
                self.position = position_from(shared["position"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"its place in the data makes no sense: {error!r}") from error
        self._to_restore = own
        self._placed = placed

    def enter_loop(self) -> None:
        """Put the random numbers to where the train step ended, unless that was done."""
        state, self._to_restore = self._to_restore, None
        if state is not None:
            self._restore(state)

    def enter_epoch(self) -> None:
        """The program begins with epoch ``position.epoch``, maybe for the second time."""
        self.is_used = True
        if self._to_restore is not None:
            self._restore(self._epoch_to_restore())
        self._began = {"rng": capture_rng(), "generator": None}
        self._is_opened = False

    def leave_epoch(self) -> None:
        self.position = Position(self.position.epoch + 1)
        self._began = None

    def open(self, loader: Iterable[Any]) -> Generator[Any, None, None]:
        """The batches of ``loader`` that were not done before, each counted once it was taken.

        Raises:
            RuntimeError: this epoch's batches were given out already.
        """
        if self._is_opened:
            raise RuntimeError(
                "run.batches() a second time in one epoch: write `for epoch in run.epochs(N):` "
                "around it; data that is not trained on is read from its loader itself"
            )
        if self._began is None:
            self.enter_epoch()
        self._is_opened = True
        assert self._began is not None
        batches = _count(loader)
        self.position = self.position.among(batches)
        self._loader = loader
        if self._to_restore is not None:
            restore_generator(loader, self._epoch_to_restore().get("generator"))
        self._began["generator"] = capture_generator(loader)
        return self._counted(self._advanced(loader, self.position.batch))

    def _advanced(self, loader: Iterable[Any], done: int) -> Iterator[Any]:
        keepers = {id(each) for each in _keepers(loader)}
        is_placed = any(id(each) in keepers for each in self._placed)
        # torch's sampler draws from a loader's own generator once more when it is exhausted, so
        # such a loader is read to its end even if nothing of the epoch is left. One that keeps its
        # place must find out by itself that nothing is.
        is_read = (
            done != self.position.batches
            or getattr(loader, "generator", None) is not None
            or is_placed
        )
        iterator = iter(loader) if is_read else iter(())
        if is_read and not is_placed:
            for _ in range(done):
                next(iterator, None)
        self._placed = [each for each in self._placed if id(each) not in keepers]
        if done:
            self.enter_loop()
        self._to_restore = None
        return iterator

    def _counted(self, iterator: Iterator[Any]) -> Generator[Any, None, None]:
        for batch in iterator:
            self.position = replace(self.position, batch=self.position.batch + 1)
            yield batch

    def _epoch_to_restore(self) -> dict[str, Any]:
        """The state when the epoch began; with no batch of it done, that is the state now."""
        assert self._to_restore is not None
        began = self._to_restore.get("epoch_began") if self.position.batch else None
        return began or self._to_restore

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            restore_rng(state["rng"])
            restore_generator(self._loader, state.get("generator"))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"its random numbers make no sense: {error!r}") from error


def _keepers(loader: Any) -> list[Any]:
    """What keeps the place in the data of ``loader``, should it have a state."""
    torch = sys.modules.get("torch")
    batches, data = getattr(loader, "batch_sampler", None), getattr(loader, "dataset", None)
    samplers = [getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None)]
    # A data set that is read by index has no place, whatever else its state may be.
    is_stream = torch is not None and isinstance(data, torch.utils.data.IterableDataset)
    return [
        loader,
        *(each for each in samplers if each is not None),
        *([data] if is_stream else []),
    ]


def _count(loader: Iterable[Any]) -> int | None:
    """How many batches an epoch has, where the loader knows it; that of a stream does not."""
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:  # torch's DataLoader has a length, until it is asked for it
        return None
