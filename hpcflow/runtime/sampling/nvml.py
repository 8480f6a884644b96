"""NVIDIA's management library, as far as it is needed here, by ctypes.

Every call can fail: there is no driver, the job may not see the GPU, the GPU fell off the bus, a
part of one (MIG) has no utilisation of its own. Functions and structures are those of
https://docs.nvidia.com/deploy/nvml-api/.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_MIB = 1 << 20


class NvmlError(Exception):
    """The library is not there, or says no."""


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
    """One look at one GPU.

    Attributes:
        busy_percent: of the last moment (1/6 s to 1 s), how much of it anything was executed; None
            where that is not known.
        mem_used_mb, mem_total_mb: also of other processes, and what the driver keeps.
    """

    busy_percent: int | None
    mem_used_mb: int | None
    mem_total_mb: int | None


class Nvml:
    """The library, opened.

    Args:
        library: what ctypes has loaded; found if not given.

    Raises:
        NvmlError: there is none, or it has no driver to talk to.
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
        """How many GPUs this process may see."""
        number = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(number))
        return number.value

    def by_index(self, index: int) -> ctypes.c_void_p:
        """The GPU with this index."""
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def by_uuid(self, uuid: str) -> ctypes.c_void_p:
        """The GPU, or the part of one, with this UUID."""
        handle = ctypes.c_void_p()
        text = ctypes.c_char_p(uuid.encode("ascii", "replace"))
        self._call("nvmlDeviceGetHandleByUUID", text, ctypes.byref(handle))
        return handle

    def uuid(self, handle: ctypes.c_void_p) -> str:
        """The UUID of a GPU."""
        text = ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetUUID", handle, text, ctypes.c_uint(len(text)))
        return text.value.decode("ascii", "replace")

    def look(self, handle: ctypes.c_void_p) -> GpuUse:
        """How busy a GPU is now, and its memory.

        Raises:
            NvmlError: nothing is known of it.
        """
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
