"""Resume in the middle of an epoch, with the same batches and random numbers.

The state of a rank in a checkpoint, as JSON values::

    {"position": {"epoch": 2, "batch": 17, "batches": 40},
     "rng": …, "generator": …,                            at the end of the train step
     "epoch_began": {"rng": …, "generator": …} or null}   when epoch 2 began

To resume, the random state is set to that of the epoch's start, the loader is opened, 17 batches
are read and dropped, and the random state is set to that of the train step's end. If the loader
restores its own position, as torchdata's does, or its sampler or stream does, no batch is dropped.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Generator, Iterable, Iterator, Sized
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpcflow.runtime.manifest import CheckpointError


@dataclass(frozen=True)
class Position:
    """A position in the data: ``batch`` of the ``batches`` of epoch ``epoch``, from 0, are done.

    ``batches`` is None if the loader has no length.
    """

    epoch: int = 0
    batch: int = 0
    batches: int | None = None

    @property
    def as_epochs(self) -> float:
        """Return the epochs done, including the part of the current one."""
        part = self.batch / self.batches if self.batches else 0.0
        return round(self.epoch + part, 4)

    def among(self, batches: int | None) -> Position:
        """Return the same position for epochs of ``batches`` batches."""
        if not batches or not self.batches or batches == self.batches:
            return replace(self, batches=batches)
        return Position(self.epoch, round(self.batch * batches / self.batches), batches)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def position_from(data: dict[str, Any]) -> Position:
    """Read a position from :meth:`Position.as_json`.

    Raises:
        ValueError, TypeError, KeyError: the data is invalid.
    """
    batches = data["batches"]
    return Position(
        int(data["epoch"]), int(data["batch"]), None if batches is None else int(batches)
    )


class DataOrder:
    """This rank's position in the data, and the random state that belongs to it."""

    def __init__(self) -> None:
        self.position = Position()
        self.is_used = False
        self._began: dict[str, Any] | None = None
        self._is_opened = False
        self._loader: Any = None
        self._to_restore: dict[str, Any] | None = None
        self._placed: list[Any] = []

    def state(self) -> dict[str, Any]:
        """Return this rank's state for a checkpoint."""
        return {
            "position": self.position.as_json() if self.is_used else None,
            "rng": capture_rng(),
            "generator": capture_generator(self._loader),
            "epoch_began": self._began,
        }

    def resume(self, shared: dict[str, Any], own: dict[str, Any] | None, placed: list[Any]) -> None:
        """Set the position in the data, which all ranks share, and this rank's random state.

        The random state is restored only when the loop begins, so that the program's code before
        the loop is not affected.

        Args:
            shared: the state of rank 0.
            own: the state of this rank; None if there is none.
            placed: loaders, data sets and samplers that have their position again.

        Raises:
            CheckpointError: ``shared`` is not from :meth:`state`.
        """
        try:
            if shared.get("position") is not None:
                self.position = position_from(shared["position"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"its position in the data is invalid: {error!r}") from error
        self._to_restore = own
        self._placed = placed

    def enter_loop(self) -> None:
        """Restore the random state of the train step's end, unless that was done."""
        state, self._to_restore = self._to_restore, None
        if state is not None:
            self._restore(state)

    def enter_epoch(self) -> None:
        """Begin epoch ``position.epoch``, or resume it."""
        self.is_used = True
        if self._to_restore is not None:
            self._restore(self._epoch_to_restore())
        self._began = {"rng": capture_rng(), "generator": None}
        self._is_opened = False

    def leave_epoch(self) -> None:
        self.position = Position(self.position.epoch + 1)
        self._began = None

    def open(self, loader: Iterable[Any]) -> Generator[Any, None, None]:
        """Return an iterator over the batches of ``loader`` that are left; count each one taken.

        Raises:
            RuntimeError: it was called before in this epoch.
        """
        if self._is_opened:
            raise RuntimeError(
                "run.batches() was called twice in one epoch: write `for epoch in run.epochs(N):` "
                "around it; for data that is not trained on, iterate over its loader"
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
        holders = {id(each) for each in _position_holders(loader)}
        is_placed = any(id(each) in holders for each in self._placed)
        # torch's sampler draws from a loader's own generator once more at its end, so such a loader
        # is read to its end even if no batch is left; so is one that restores its own position.
        is_read = (
            done != self.position.batches
            or getattr(loader, "generator", None) is not None
            or is_placed
        )
        iterator = iter(loader) if is_read else iter(())
        if is_read and not is_placed:
            for _ in range(done):
                next(iterator, None)
        self._placed = [each for each in self._placed if id(each) not in holders]
        if done:
            self.enter_loop()
        self._to_restore = None
        return iterator

    def _counted(self, iterator: Iterator[Any]) -> Generator[Any, None, None]:
        for batch in iterator:
            self.position = replace(self.position, batch=self.position.batch + 1)
            yield batch

    def _epoch_to_restore(self) -> dict[str, Any]:
        """Return the state at the epoch's start; with no batch done, that is the current state."""
        assert self._to_restore is not None
        began = self._to_restore.get("epoch_began") if self.position.batch else None
        return began or self._to_restore

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            restore_rng(state["rng"])
            restore_generator(self._loader, state.get("generator"))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"its random state is invalid: {error!r}") from error


def _position_holders(loader: Any) -> list[Any]:
    """Return the objects that may hold the position in the data of ``loader``."""
    torch = sys.modules.get("torch")
    batches, data = getattr(loader, "batch_sampler", None), getattr(loader, "dataset", None)
    samplers = [getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None)]
    # A data set that is read by index has no position.
    is_stream = torch is not None and isinstance(data, torch.utils.data.IterableDataset)
    return [
        loader,
        *(each for each in samplers if each is not None),
        *([data] if is_stream else []),
    ]


def _count(loader: Iterable[Any]) -> int | None:
    """Return the number of batches of an epoch; None if the loader, as of a stream, has none."""
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:  # torch's DataLoader of a stream has a __len__ that raises
        return None


def capture_rng() -> dict[str, Any]:
    """Return the state of the generators of Python, NumPy (the global one) and torch (CPU, and the
    current GPU), if imported. The program itself must save generators that it has created."""
    state: dict[str, Any] = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        legacy = numpy.random.get_state(legacy=False)
        legacy["state"] = {"key": legacy["state"]["key"].tolist(), "pos": legacy["state"]["pos"]}
        state["numpy"] = legacy
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().tolist()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state().tolist()
    return state


def restore_rng(state: dict[str, Any]) -> None:
    """Restore the state from :func:`capture_rng`.

    Raises:
        ValueError, TypeError, KeyError, RuntimeError: the state is invalid.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(_bytes(state["torch"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(_bytes(state["cuda"]))


def capture_generator(loader: Any) -> list[int] | None:
    """Return the state of a torch DataLoader's own generator; None if it has none."""
    generator = getattr(loader, "generator", None)
    return None if generator is None else list(generator.get_state().tolist())


def restore_generator(loader: Any, state: list[int] | None) -> None:
    generator = getattr(loader, "generator", None)
    if generator is not None and state is not None:
        generator.set_state(_bytes(state))


def _bytes(values: list[int]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.uint8, device="cpu")
