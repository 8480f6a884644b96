"""How the ranks of a training agree: everything they decide together goes through one maximum.

Each rank contributes an integer at the end of every train step; at the end of the next one all
read the same maximum. So all ranks save at the same train step, and the exchange runs beside the
train step in between instead of holding it up. It has a gloo group of its own: it runs on the CPU
and never mixes with the program's collectives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from hpcflow.runtime.notice import NOTHING

#: So long a rank waits for others, which may be writing to a slow disk. torch's half hour would end
#: such a training. A rank that died is noticed at once, by its connection.
_PATIENCE_S = 24 * 3600


class Ranks(Protocol):
    """All processes of a training, seen from one of them."""

    rank: int
    world_size: int

    def agree(self, value: int) -> int:
        """Contribute ``value``; returns what all agreed on, with many ranks one call later."""
        ...

    def settle(self) -> None:
        """Wait for the exchange under way, so that all may stop here."""
        ...

    def max(self, value: int) -> int:
        """The maximum of ``value`` over all ranks, at once; also a barrier."""
        ...

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:
        """The answer of rank 0 to this rank: ``decide`` makes of all values an answer for each.

        Raises:
            Exception: what ``decide`` raised, on all ranks.
        """
        ...

    def leave(self) -> None:
        """The process is about to exit on purpose."""
        ...


class Alone:
    """A training of one process."""

    rank = 0
    world_size = 1

    def agree(self, value: int) -> int:
        return value

    def settle(self) -> None:
        return None

    def max(self, value: int) -> int:
        return value

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:
        return decide([value])[0]

    def leave(self) -> None:
        return None


class OtherRanks:
    """The ranks of another framework, which brings the maximum over all of them."""

    def __init__(self, rank: int, world_size: int, maximum: Callable[[int], int]) -> None:
        self.rank = rank
        self.world_size = world_size
        self._maximum = maximum

    def agree(self, value: int) -> int:
        return self.max(value)

    def settle(self) -> None:
        return None

    def max(self, value: int) -> int:
        return int(self._maximum(value))

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:  # noqa: ARG002
        raise TypeError("torch tensors sharded over ranks that are not torch's cannot be saved")

    def leave(self) -> None:
        return None


class TorchRanks:
    """The ranks of torch.distributed. Creating it is collective: every rank does."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self.rank: int = dist.get_rank()
        self.world_size: int = dist.get_world_size()
        self._group = dist.new_group(backend="gloo")
        # Now, for a rank that never came to meet the others is not to be waited for as long.
        set_timeout = getattr(dist.distributed_c10d, "_set_pg_timeout", None)  # torch's own affair
        if set_timeout is not None:
            set_timeout(timedelta(seconds=_PATIENCE_S), self._group)
        self._work: Any = None
        self._value: Any = None

    def agree(self, value: int) -> int:
        agreed = self._finish()
        self._value = self._integer(value)
        self._work = self._all_reduce(async_op=True)
        return agreed

    def settle(self) -> None:
        self._finish()

    def max(self, value: int) -> int:
        tensor = self._integer(value)
        self._dist.all_reduce(tensor, op=self._dist.ReduceOp.MAX, group=self._group)
        return int(tensor.item())

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:
        values: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        self._dist.gather_object(value, values, dst=0, group=self._group)
        answers: list[Any] | None = None
        if values is not None:
            try:
                answers = decide(values)
            except Exception as error:  # or the others would wait for an answer
                answers = [error] * self.world_size
        mine: list[Any] = [None]
        self._dist.scatter_object_list(mine, answers, src=0, group=self._group)
        if isinstance(mine[0], Exception):
            raise mine[0]
        return mine[0]

    def _integer(self, value: int) -> Any:
        """On the CPU, whatever the program has made torch's default device."""
        return self._torch.tensor([value], dtype=self._torch.int64, device="cpu")

    def leave(self) -> None:
        # Not now: a `finally` of the program may do it too, and torch calls the second time an
        # error, which would replace the exit code.
        import atexit

        atexit.register(self._destroy)

    def _destroy(self) -> None:
        if self._dist.is_initialized():
            self._dist.destroy_process_group()

    def _all_reduce(self, *, async_op: bool) -> Any:
        maximum = self._dist.ReduceOp.MAX
        return self._dist.all_reduce(self._value, op=maximum, group=self._group, async_op=async_op)

    def _finish(self) -> int:
        if self._work is None:
            return NOTHING
        self._work.wait()
        self._work = None
        return int(self._value.item())


def find_ranks(rank: int, world_size: int, maximum: Callable[[int], int] | None) -> Ranks:
    """The ranks of this training.

    Args:
        rank, world_size: this rank, and how many there should be, as the environment has it.
        maximum: how another framework than torch takes the maximum over all ranks.

    Raises:
        RuntimeError: there should be several, but torch.distributed was not initialised.
    """
    if maximum is not None:
        return OtherRanks(rank, world_size, maximum)
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available():
        dist = torch.distributed
        if dist.is_initialized() and dist.get_world_size() > 1:
            return TorchRanks()
        if dist.is_initialized():
            return Alone()
    if world_size > 1:
        raise RuntimeError(
            f"WORLD_SIZE is {world_size}, but the ranks do not know each other yet: call "
            "torch.distributed.init_process_group() before runtime.start(), or, with another "
            "framework than torch, give runtime.start() a max_over_ranks"
        )
    return Alone()
