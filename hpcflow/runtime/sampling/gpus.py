"""Find the GPUs of the job on this node, and sample them.

They are those in ``CUDA_VISIBLE_DEVICES``: indices, UUIDs or their beginnings, or parts of GPUs
(``MIG-…``). As in CUDA, entries after an invalid one are ignored.
"""

from __future__ import annotations

import ctypes

from hpcflow.runtime.sampling.nvml import GpuUse, Nvml, NvmlError

#: After this many failures in a row, a GPU is not sampled again.
_MOST_FAILURES = 20


class Gpus:
    """The GPUs of this job on this node; none if unknown."""

    def __init__(self, nvml: Nvml | None, handles: dict[str, ctypes.c_void_p]) -> None:
        self._nvml, self._handles = nvml, handles
        self._failures = dict.fromkeys(handles, 0)

    def look(self) -> dict[str, GpuUse]:
        """Return name, such as ``0`` -> sample; without GPUs that do not answer."""
        seen = {}
        for name, handle in self._handles.items():
            if self._nvml is None or self._failures[name] >= _MOST_FAILURES:
                continue
            try:
                seen[name] = self._nvml.look(handle)
                self._failures[name] = 0
            except NvmlError:
                self._failures[name] += 1
        return seen


def find_gpus(visible: str | None, asked: int, nvml: Nvml | None = None) -> Gpus:
    """Return the job's GPUs on this node.

    Args:
        visible: ``CUDA_VISIBLE_DEVICES``; None if it is not set.
        asked: number of GPUs of the job on every node; with 0, the library is not opened.
        nvml: the library; opened if not given.
    """
    if asked == 0:
        return Gpus(None, {})
    try:
        nvml = nvml or Nvml()
        if visible is None:  # then all GPUs are the job's, or it is unknown which are
            count = nvml.count()
            names = [str(index) for index in range(count)] if count == asked else []
        else:
            names = [name.strip() for name in visible.split(",")]
    except NvmlError:
        return Gpus(None, {})
    handles: dict[str, ctypes.c_void_p] = {}
    for name in names:
        handle = _handle(nvml, name)
        if handle is None:
            break
        short = _short(name)
        handles[name if short in handles else short] = handle
    return Gpus(nvml, handles)


def _handle(nvml: Nvml, name: str) -> ctypes.c_void_p | None:
    try:
        if name.isdecimal():
            return nvml.by_index(int(name))
        if name.startswith("MIG-"):
            return nvml.by_uuid(name)
        if name.startswith("GPU-"):
            handles = [nvml.by_index(index) for index in range(nvml.count())]
            found = [each for each in handles if nvml.uuid(each).startswith(name)]
            return found[0] if len(found) == 1 else None
    except NvmlError:
        pass
    return None


def _short(name: str) -> str:
    """Shorten a UUID; its beginning distinguishes the GPUs of one node."""
    return name if name.isdecimal() else name[:12]
