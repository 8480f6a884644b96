"""The points at which a process makes something last, and death, or a full disk, at any of them.

Counted in the process itself: each write, sync, rename, link, folder and removal, each statement to
the ledger, and each program that is started. A write may also be torn: half of it gets there.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import IO, Any, Final

from hpcflow.ledger.connection import Connection

#: What changes a folder or a file; of some of them a full disk is no reason to fail.
_CALLS: Final = (
    "fsync", "fdatasync", "rename", "replace", "link", "symlink", "mkdir", "unlink", "remove",
    "rmdir", "truncate", "ftruncate", "mkfifo",
)  # fmt: skip
_NEED_ROOM: Final = frozenset(
    ("open", "write", "pwrite", "fsync", "fdatasync", "link", "symlink", "mkdir", "mkfifo")
)
#: Of the same call in the same folder, so many are points.
_ALIKE: Final = 4


class How(str, Enum):
    """What happens at the point."""

    KILLED = "killed before"
    TORN = "killed in the midst of"
    FULL = "full disk from"
    FULL_ONCE = "full disk once at"
    WRITTEN_OFF = "input/output error at"

    def fits(self, point: str) -> bool:
        """Whether it makes a difference at a point, as it is told."""
        name = point.partition(" ")[0]
        if self is How.KILLED:
            return True
        return name in (("write", "pwrite") if self is How.TORN else _NEED_ROOM)


class Points:
    """Counts, and strikes at one of them.

    Args:
        number: of the point, from 1; 0 to count only.
        log: where the points are told, or what was struck.
    """

    def __init__(self, number: int, how: How, log: Path) -> None:
        self._number, self._how = number, how
        self._path, self._log = log, -1
        self._lock = threading.Lock()
        self._count, self._alike = 0, Counter[tuple[str, str]]()
        self._has_struck = False
        self._write, self._open = os.write, io.open

    def watch(self) -> None:
        """In the process that is to be struck; it is for good."""
        self._log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for name in _CALLS:
            setattr(os, name, self._around(name, getattr(os, name)))
        for name in ("write", "pwrite"):
            setattr(os, name, self._around_write(name, getattr(os, name)))
        os.open = self._around_open(os.open)
        builtins.open = io.open = self._open_watched  # type: ignore[assignment]
        for name in ("execute", "execute_many"):
            setattr(Connection, name, self._around("sql", getattr(Connection, name)))
        start = self._around("start of a program", subprocess.Popen.__init__)
        subprocess.Popen.__init__ = start  # type: ignore[method-assign]

    def at(self, name: str, what: object = "", tear: Callable[[], object] | None = None) -> None:
        """The process is at a point."""
        with self._lock:
            if self._has_struck:
                if self._how is How.FULL and name in _NEED_ROOM:
                    raise _full(what)
                return
            kind = name, _path(what).rpartition("/")[0]
            self._alike[kind] += 1
            if self._alike[kind] > _ALIKE:
                return
            self._count += 1
            if self._number == 0:
                self._tell(f"{name} {_path(what)}")
            elif self._count == self._number:
                self._has_struck = True
                self._tell(f"{self._how.value} {name} {_path(what)}")
                self._strike(name, what, tear)

    def _strike(self, name: str, what: object, tear: Callable[[], object] | None) -> None:
        if self._how is How.TORN and tear is not None:
            tear()
        if self._how in (How.KILLED, How.TORN):
            os.kill(os.getpid(), signal.SIGKILL)
        if name in _NEED_ROOM:
            raise _full(what, errno.EIO if self._how is How.WRITTEN_OFF else errno.ENOSPC)

    def _tell(self, text: str) -> None:
        self._write(self._log, text.encode(errors="replace").replace(b"\n", b" ") + b"\n")

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            self.at(name, next((each for each in args if isinstance(each, (str, Path))), ""))
            return function(*args, **options)

        return wrapped

    def _around_write(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        def wrapped(descriptor: int, data: Any, *args: Any) -> int:
            if descriptor in (1, 2):
                return function(descriptor, data, *args)
            half = memoryview(data).cast("B")[: len(memoryview(data).cast("B")) // 2]
            self.at(name, descriptor, lambda: function(descriptor, half, *args))
            return function(descriptor, data, *args)

        return wrapped

    def _around_open(self, function: Callable[..., int]) -> Callable[..., int]:
        def wrapped(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                self.at("open", path)
            return function(path, flags, *args, **options)

        return wrapped

    def _open_watched(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> IO[Any]:
        """As ``open``; what is written goes through a file that counts."""
        if not set(mode) & set("wax+") or file in (1, 2):
            return self._open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if not isinstance(file, int):
            self.at("open", file)
        raw = _Watched(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        raw.points = self
        if buffering == 0:
            return raw
        binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return binary
        return io.TextIOWrapper(binary, encoding or "utf-8", errors, newline, buffering == 1)


class _Watched(io.FileIO):
    points: Points

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        half = view[: len(view) // 2]
        self.points.at("write", self.fileno(), lambda: super(_Watched, self).write(half))
        return super().write(data)


def _full(what: object, number: int = errno.ENOSPC) -> OSError:
    return OSError(number, os.strerror(number), _path(what))


def _path(what: object) -> str:
    """Of what was opened before: which file that is."""
    if isinstance(what, int):
        try:
            return str(Path(f"/proc/self/fd/{what}").readlink())
        except OSError:
            return str(what)
    return str(what)[:300]
