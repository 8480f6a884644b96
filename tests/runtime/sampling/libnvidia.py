"""A stand-in for libnvidia-ml.so.1: GPUs that say what a test wants them to say.

The same in C, where there is a compiler, and by ctypes' own calling of Python functions: so what is
called, and with which types, is tested as it is with the real library.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

MIB: Final = 1 << 20
#: Of each GPU: UUID, busy percent, MiB used and in all; below 0 for an error.
GPUS: Final = (
    ("GPU-aaaa1111-0000", 97, 30_000, 80_000),
    ("GPU-bbbb2222-0000", 0, 4, 80_000),
    ("GPU-cccc3333-0000", -3, 9_000, 10_000),  # utilisation is not supported: a part of a GPU
    ("GPU-dddd4444-0000", -15, -15, 80_000),  # lost
)
#: A part of the third one.
MIG: Final = "MIG-1c83ef76-part"

_SOURCE: Final = r"""
#include <string.h>
static const char *uuids[] = {%(uuids)s};
static const int busy[] = {%(busy)s};
static const long long used[] = {%(used)s};
static const long long total[] = {%(total)s};
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } rates_t;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = %(count)d; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
  if (index >= %(count)d) return 2;
  *handle = (void *)(unsigned long)(index + 1);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  if (strcmp(uuid, "%(mig)s") != 0) return 6;
  *handle = (void *)3UL;
  return 0;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned int length) {
  strncpy(text, uuids[(unsigned long)handle - 1], length);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
  unsigned long index = (unsigned long)handle - 1;
  if (used[index] < 0) return (int)-used[index];
  memory->total = total[index] << 20;
  memory->used = used[index] << 20;
  memory->free = memory->total - memory->used;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, rates_t *rates) {
  unsigned long index = (unsigned long)handle - 1;
  if (busy[index] < 0) return -busy[index];
  rates->gpu = (unsigned int)busy[index];
  return 0;
}
"""


def compiled(folder: Path) -> Path:
    """The library in C, as a file."""
    uuids, busy, used, total = zip(*GPUS, strict=True)
    text = _SOURCE % {
        "uuids": ", ".join(f'"{uuid}"' for uuid in uuids),
        "busy": ", ".join(map(str, busy)),
        "used": ", ".join(map(str, used)),
        "total": ", ".join(map(str, total)),
        "count": len(GPUS),
        "mig": MIG,
    }
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(text)
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return library


def from_c(folder: Path) -> Any:
    """The library in C, loaded."""
    return ctypes.CDLL(str(compiled(folder)))


def from_python(_folder: Path) -> Any:
    """The same, by functions of ctypes that call back."""
    return _InPython()


class _InPython:
    def __init__(self) -> None:
        pointer, number, text = ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p
        self.nvmlInit_v2 = _function(lambda: 0)
        self.nvmlDeviceGetCount_v2 = _function(self._count, pointer)
        self.nvmlDeviceGetHandleByIndex_v2 = _function(self._by_index, number, pointer)
        self.nvmlDeviceGetHandleByUUID = _function(self._by_uuid, text, pointer)
        self.nvmlDeviceGetUUID = _function(self._uuid, pointer, pointer, number)
        self.nvmlDeviceGetMemoryInfo = _function(self._memory, pointer, pointer)
        self.nvmlDeviceGetUtilizationRates = _function(self._rates, pointer, pointer)

    @staticmethod
    def _count(count: int) -> int:
        ctypes.c_uint.from_address(count).value = len(GPUS)
        return 0

    @staticmethod
    def _by_index(index: int, handle: int) -> int:
        ctypes.c_void_p.from_address(handle).value = index + 1
        return 0 if index < len(GPUS) else 2

    @staticmethod
    def _by_uuid(uuid: bytes, handle: int) -> int:
        ctypes.c_void_p.from_address(handle).value = 3
        return 0 if uuid == MIG.encode() else 6

    @staticmethod
    def _uuid(handle: int, text: int, _length: int) -> int:
        ctypes.memmove(text, GPUS[handle - 1][0].encode() + b"\0", len(GPUS[handle - 1][0]) + 1)
        return 0

    @staticmethod
    def _memory(handle: int, memory: int) -> int:
        _, _, used, total = GPUS[handle - 1]
        values = (ctypes.c_ulonglong * 3).from_address(memory)
        values[0], values[2] = total * MIB, max(0, used) * MIB
        return max(0, -used)

    @staticmethod
    def _rates(handle: int, rates: int) -> int:
        busy = GPUS[handle - 1][1]
        ctypes.c_uint.from_address(rates).value = max(0, busy)
        return max(0, -busy)


def _function(called: Callable[..., int], *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(called)


#: Those that can be had here.
LIBRARIES: Final = [from_python, *([from_c] if shutil.which("cc") else [])]
