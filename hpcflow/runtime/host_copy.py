"""Copy state dicts in host memory between two train steps.

While the copy is written, the training continues and changes the tensors. Values that are not
tensors are copied by pickling. Storage that several tensors share is copied once, so tied weights
are tied in the file, too. Copies from GPUs go to pinned memory, are started one after the other,
and waited for once. On the CPU several threads copy, because one cannot use the full memory
bandwidth, with the C library's memmove, which writes large pieces without reading their target.

The memory is kept for the next copy, because a new allocation takes longer than the copy. It is
never more than one copy of the state.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any

from hpcflow.runtime.background import Background, processors
from hpcflow.runtime.plain import pickled

#: Bytes that a thread copies at a time.
_PIECE_BYTES = 8 << 20

#: More threads do not copy faster, and other ranks copy at the same time.
_MOST_THREADS = 4


class HostCopies:
    """The copied state dicts of one checkpoint; the memory is reused for the next one."""

    def __init__(self) -> None:
        self._buffers: list[Any] = []
        self._used = 0
        self._sources: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._streams: dict[Any, Any] = {}
        self._pieces: deque[tuple[int, int, int]] = deque()

    def restart(self) -> None:
        """Begin a new copy; the last one must no longer be in use."""
        self._used = 0
        self._sources, self._streams = {}, {}
        self._pieces.clear()

    def take(self, state: Any) -> Callable[[], Any]:
        """Copy ``state``, which may change once :meth:`wait` has returned.

        Returns:
            A function that returns the copy: a value of the same structure, on the CPU.

        Raises:
            OSError: there is not enough host memory.
            pickle.PicklingError, TypeError, AttributeError: a value cannot be pickled.
        """
        return pickled(state, self._copied)

    def wait(self) -> None:
        """Wait until all copies are in host memory."""
        self._copy_pieces()
        for stream in self._streams.values():
            stream.synchronize()
        self._streams = {}
        self._sources = {}
        del self._buffers[self._used :]

    def free(self) -> None:
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
            # Keep the source, or another tensor could get its address before the copy is done.
            self._sources[key] = (source, target.untyped_storage())
        return self._sources[key][1]

    def _copy_pieces(self) -> None:
        def copy() -> None:
            while True:
                try:
                    target, source, size_bytes = self._pieces.popleft()
                except IndexError:
                    return
                ctypes.memmove(target, source, size_bytes)  # ctypes releases the GIL

        threads = min(len(self._pieces), _MOST_THREADS, processors())
        helpers = [Background(copy) for _ in range(threads - 1)]
        copy()
        for helper in helpers:
            helper.wait()

    def _buffer(self, size_bytes: int, *, is_pinned: bool) -> Any:
        """Return memory of this size, reused from the last copy if it has the same size."""
        import torch

        index, self._used = self._used, self._used + 1
        if index < len(self._buffers):
            old = self._buffers[index]
            if old.numel() == size_bytes and (old.is_pinned() if is_pinned else True):
                return old
            self._buffers[index] = old = None  # free it before the next allocation
        new = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=is_pinned, device="cpu")
        self._buffers[index : index + 1] = [new]
        return new


def _pieces(target: Any, source: Any) -> list[tuple[int, int, int]]:
    """Return the pieces of a copy: target address, source address, and bytes."""
    to, of, size_bytes = target.data_ptr(), source.data_ptr(), source.numel()
    return [
        (to + at, of + at, min(_PIECE_BYTES, size_bytes - at))
        for at in range(0, size_bytes, _PIECE_BYTES)
    ]
