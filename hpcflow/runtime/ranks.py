"""Let the ranks of a training agree: every common decision is a maximum over all ranks.

Each rank contributes an integer at the end of every train step; at the end of the next one, all
read the same maximum. So all ranks save at the same train step, and the exchange runs during the
train step in between, without a wait. It uses its own gloo group, on the CPU, and never mixes with
the program's collectives.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from hpcflow.runtime.files import create_marker
from hpcflow.runtime.job import Job
from hpcflow.runtime.notice import NOTHING
from hpcflow.runtime.warn import warn

#: How long a rank waits for others, which may be writing to a slow disk: torch's default of half an
#: hour would end such a training. The death of a rank is noticed at once, by its connection.
_PATIENCE_S = 24 * 3600


class Ranks(Protocol):
    """All processes of a training, seen from one of them."""

    rank: int
    world_size: int

    def agree(self, value: int) -> int:
        """Contribute ``value``; return the maximum, with several ranks that of the last call."""
        ...

    def finish_exchange(self) -> None:
        """Wait for the exchange under way, if there is one."""
        return

    def max(self, value: int) -> int:
        """Return the maximum of ``value`` over all ranks; also a barrier."""
        ...

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:
        """Return rank 0's answer for this rank: ``decide`` maps all values to one answer each.

        Raises:
            Exception: on all ranks: ``decide`` raised it.
        """
        ...

    def prepare_exit(self) -> None:
        """Prepare for a deliberate exit of this process."""
        return


class Alone(Ranks):
    """A training of one process."""

    rank = 0
    world_size = 1

    def agree(self, value: int) -> int:
        return value

    def max(self, value: int) -> int:
        return value

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:
        return decide([value])[0]


class OtherRanks(Ranks):
    """The ranks of another framework, which provides the maximum over all ranks."""

    def __init__(self, rank: int, world_size: int, maximum: Callable[[int], int]) -> None:
        self.rank = rank
        self.world_size = world_size
        self._maximum = maximum

    def agree(self, value: int) -> int:
        return self.max(value)

    def max(self, value: int) -> int:
        return int(self._maximum(value))

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:  # noqa: ARG002
        raise TypeError("torch tensors sharded over ranks that are not torch's cannot be saved")


class TorchRanks(Ranks):
    """The ranks of torch.distributed. Creating it is a collective call."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self.rank: int = dist.get_rank()
        self.world_size: int = dist.get_world_size()
        self._group = dist.new_group(backend="gloo")
        # Only now: creating the group must not wait that long for a missing rank.
        set_timeout = getattr(dist.distributed_c10d, "_set_pg_timeout", None)  # torch's own affair
        if set_timeout is not None:
            set_timeout(timedelta(seconds=_PATIENCE_S), self._group)
        self._work: Any = None
        self._value: Any = None

    def agree(self, value: int) -> int:
        agreed = self._finish()
        self._value = self._integer(value)
        maximum = self._dist.ReduceOp.MAX
        self._work = self._dist.all_reduce(
            self._value, op=maximum, group=self._group, async_op=True
        )
        return agreed

    def finish_exchange(self) -> None:
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
            except Exception as error:  # the other ranks wait for an answer
                answers = [error] * self.world_size
        mine: list[Any] = [None]
        self._dist.scatter_object_list(mine, answers, src=0, group=self._group)
        if isinstance(mine[0], Exception):
            raise mine[0]
        return mine[0]

    def _integer(self, value: int) -> Any:
        """Create a tensor on the CPU, regardless of torch's default device."""
        return self._torch.tensor([value], dtype=self._torch.int64, device="cpu")

    def prepare_exit(self) -> None:
        # At exit, because a `finally` of the program may destroy it, too: torch raises an error for
        # the second time, which would replace the exit code.
        import atexit

        atexit.register(self._destroy)

    def _destroy(self) -> None:
        if self._dist.is_initialized():
            self._dist.destroy_process_group()

    def _finish(self) -> int:
        if self._work is None:
            return NOTHING
        self._work.wait()
        self._work = None
        return int(self._value.item())


def find_ranks(rank: int, world_size: int, maximum: Callable[[int], int] | None) -> Ranks:
    """Return the ranks of this training.

    Args:
        rank, world_size: this rank and the number of ranks, from the environment.
        maximum: returns the maximum over all ranks, for another framework than torch.

    Raises:
        RuntimeError: there are several ranks, but torch.distributed was not initialised.
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
            f"WORLD_SIZE is {world_size}, but torch.distributed is not initialised: call "
            "torch.distributed.init_process_group() before runtime.start(), or, with another "
            "framework than torch, pass max_over_ranks to runtime.start()"
        )
    return Alone()


def exit_on_notice(job: Job, ranks: Ranks) -> None:
    """Exit, on all ranks together, after the save.

    The file ``resubmit`` requests the resubmission, because torchrun turns every rank's exit code
    into 1.

    Raises:
        SystemExit: always, so that every ``finally`` of the program runs.
    """
    if ranks.rank == 0 and job.attempt_dir is not None:
        try:
            create_marker(job.attempt_dir / "resubmit")
        except OSError as error:
            warn(f"cannot record the request for a resubmission: {error}")
    # A barrier: torchrun ends all ranks once one exits, and the marker must exist by then.
    ranks.max(0)
    ranks.prepare_exit()
    if threading.current_thread() is threading.main_thread():
        # Python drops its handlers while it exits, which takes torch a while: another USR2 would
        # kill the process, and the attempt would count as failed.
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    raise SystemExit(job.exit_code)
