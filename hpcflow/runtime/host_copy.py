"""A copy of state dicts in host memory, as they are between two train steps.

While the copy is written, the training continues and changes the tensors. Other values are copied
by pickling them. The memory behind the tensors is copied once, however many of them share it: tied
weights are as tied in the file as in the model. From GPUs all copies go into pinned memory, are
started one after the other, and waited for once. On the CPU several threads copy, for one does not
make use of all of the memory's speed, and by the C library's memmove, which writes large pieces
without reading first what they replace.

The memory is kept for the next copy, because to get it again from the system takes longer than the
copying itself. There is never more of it than one copy of the state.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any

from hpcflow.runtime.background import Background, processors
from hpcflow.runtime.plain import pickled

#: What a thread copies before it takes the next piece.
_PIECE_BYTES = 8 << 20

#: More threads than that do not make memory faster, and other ranks copy at the same time.
_MOST_THREADS = 4


class HostCopies:
    """The state dicts of one checkpoint; filled again for the next one."""

    def __init__(self) -> None:
        self._buffers: list[Any] = []
        self._used = 0
        self._sources: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._streams: dict[Any, Any] = {}
        self._pieces: deque[tuple[int, int, int]] = deque()

    def restart(self) -> None:
        """Begin a new copy; what was taken before is no longer used by anybody."""
        self._used = 0
        self._sources, self._streams = {}, {}
        self._pieces.clear()

    def take(self, state: Any) -> Callable[[], Any]:
        """Copy ``state``, which may change once :meth:`settle` returns.

        Returns:
            What gives the copy: a value of the same structure, on the CPU.

        Raises:
            OSError: there is not enough host memory.
            pickle.PicklingError, TypeError, AttributeError: it holds what cannot be pickled.
        """
        return pickled(state, self._copied)

    def settle(self) -> None:
        """Return when everything that was taken is in host memory."""
        self._copy_pieces()
        for stream in self._streams.values():
            stream.synchronize()
        self._streams = {}
        self._sources = {}
        del self._buffers[self._used :]

    def free(self) -> None:
        """Give the memory back."""
        self._buffers = []
        self._used = 0

    def _copied(self, tensor: Any) -> Any:
        import torch

        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
        try:
            if (
                not plain
                or tensor.layout != torch.strided
                or tensor.device.type not in ("cpu", "cuda")
                or tensor.is_quantized
                or tensor.is_conj()
                or tensor.is_neg()
            ):
                return tensor.detach().to("cpu", copy=True)
            copy = torch.empty(0, dtype=tensor.dtype, device="cpu").set_(
                self._storage(tensor), tensor.storage_offset(), tensor.size(), tensor.stride()
            )
        except (MemoryError, RuntimeError) as error:
            raise OSError(f"no copy in host memory could be made: {error}") from error
        if type(tensor) is torch.nn.Parameter:
            return torch.nn.Parameter(copy, tensor.requires_grad)
        return copy.requires_grad_(tensor.requires_grad)

    def _storage(self, tensor: Any) -> Any:
        """The copy of the memory behind ``tensor``."""
        import torch

        storage = tensor.untyped_storage()
        key = (tensor.device, storage.data_ptr(), storage.nbytes())
        if key not in self._sources:
            source = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            target = self._buffer(storage.nbytes(), is_pinned=tensor.is_cuda)
            if tensor.is_cuda:
                target.copy_(source, non_blocking=True)
                self._streams[tensor.device] = torch.cuda.current_stream(tensor.device)
            else:
                self._pieces.extend(_pieces(target, source))
            # The source is held, lest another tensor gets its address before this copy is whole.
            self._sources[key] = (source, target.untyped_storage())
        return self._sources[key][1]

    def _copy_pieces(self) -> None:
        def copy() -> None:
            while True:
                try:
                    target, source, size_bytes = self._pieces.popleft()
                except IndexError:
                    return
                ctypes.memmove(target, source, size_bytes)  # the other threads run meanwhile

        threads = min(len(self._pieces), _MOST_THREADS, processors())
        helpers = [Background(copy) for _ in range(threads - 1)]
        copy()
        for helper in helpers:
            helper.wait()

    def _buffer(self, size_bytes: int, *, is_pinned: bool) -> Any:
        """Memory of this size: that of the last copy, where that was as large."""
        import torch

        index, self._used = self._used, self._used + 1
        if index < len(self._buffers):
            old = self._buffers[index]
            if old.numel() == size_bytes and (old.is_pinned() if is_pinned else True):
                return old
            self._buffers[index] = old = None  # before there is another, not after
        new = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=is_pinned, device="cpu")
        self._buffers[index : index + 1] = [new]
        return new


def _pieces(target: Any, source: Any) -> list[tuple[int, int, int]]:
    """To copy ``source`` to ``target``: their addresses, and numbers of bytes."""
    to, of, size_bytes = target.data_ptr(), source.data_ptr(), source.numel()
    return [
        (to + at, of + at, min(_PIECE_BYTES, size_bytes - at))
        for at in range(0, size_bytes, _PIECE_BYTES)
    ]
