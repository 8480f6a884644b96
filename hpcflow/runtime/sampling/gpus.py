"""Find the GPUs of the job on this node, and sample them.

They are those in ``CUDA_VISIBLE_DEVICES``: indices, UUIDs or their beginnings, or parts of GPUs
(``MIG-…``). As in CUDA, entries after an invalid one are ignored. The library is that of
https://docs.nvidia.com/deploy/nvml-api/.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

#: After this many failures in a row, a GPU is not sampled again.
_MOST_FAILURES = 20
_LIBRARY = "libnvidia-ml.so.1"
_MIB = 1 << 20


class NvmlError(Exception):
    """The library is missing, or a call failed."""


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


@dataclass(frozen=True)
class GpuUse:
    """One sample of one GPU.

    Attributes:
        busy_percent: share of the last 1/6 s to 1 s in which a kernel was executed; None if
            unknown.
        mem_used_mb, mem_total_mb: including other processes, and the driver's own memory.
    """

    busy_percent: int | None
    mem_used_mb: int | None
    mem_total_mb: int | None


class Nvml:
    """NVIDIA's management library, by ctypes.

    Every call can fail: there is no driver, the job may not access the GPU, the GPU fell off the
    bus, a part of one (MIG) has no utilization.

    Args:
        library: loaded by ctypes; found if not given.

    Raises:
        NvmlError: there is no library, or no driver.
    """

    def __init__(self, library: Any = None) -> None:
        if library is None:
            try:
                library = ctypes.CDLL(_LIBRARY)
            except OSError as error:
                raise NvmlError(str(error)) from None
        self._library = library
        self._call("nvmlInit_v2")

    def count(self) -> int:
        """Return the number of GPUs that this process can see."""
        number = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(number))
        return number.value

    def by_index(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def by_uuid(self, uuid: str) -> ctypes.c_void_p:
        """Return the GPU, or the part of one, with this UUID."""
        handle = ctypes.c_void_p()
        text = ctypes.c_char_p(uuid.encode("ascii", "replace"))
        self._call("nvmlDeviceGetHandleByUUID", text, ctypes.byref(handle))
        return handle

    def uuid(self, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetUUID", handle, text, ctypes.c_uint(len(text)))
        return text.value.decode("ascii", "replace")

    def look(self, handle: ctypes.c_void_p) -> GpuUse:
        """Sample the utilization and memory of a GPU. Raise NvmlError if neither is available."""
        memory, utilization = _Memory(), _Utilization()
        busy, has_memory = None, False
        problem = None
        try:
            self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
            has_memory = True
        except NvmlError as error:
            problem = error
        try:
            self._call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(utilization))
            busy = min(100, int(utilization.gpu))
        except NvmlError as error:
            if not has_memory:
                raise problem or error from None
        used_mb, total_mb = memory.used // _MIB, memory.total // _MIB
        return GpuUse(busy, used_mb if has_memory else None, total_mb if has_memory else None)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError:
            raise NvmlError(f"this driver has no {name}") from None
        if code != 0:
            raise NvmlError(f"{name}: error {code}")


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
