"""Timing whole processes, and a goal next to what was measured.

Absolute seconds mean little on a shared machine, so a goal is a ratio against a peer or a limit
that is measured in the same run, the two in turn.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

#: Between two looks at the memory of a process; the kernel keeps the peak of what was before.
_LOOK_S = 0.01
#: How much of its stderr is shown for a process that failed.
_LAST_LINES: Final = 20


@dataclass(frozen=True)
class Usage:
    """One finished process: wall seconds, and the peak of its resident memory in MiB."""

    wall_s: float
    peak_mb: float


@dataclass(frozen=True)
class Row:
    """A line of the table. ``goal`` and ``measured`` are in words, with their unit.

    An aim is a goal that may be missed.
    """

    what: str
    measured: str
    goal: str
    is_met: bool
    is_aim: bool = False


class ProcessFailedError(RuntimeError):
    """A process that ended with another exit code than 0; the text has the end of its stderr."""


def time_process(start: Callable[[], subprocess.Popen[str]]) -> Usage:
    """Run one process to its end, and look at its memory meanwhile.

    Raises:
        ProcessFailedError: it failed; a failed run has no time.
    """
    began = time.perf_counter()
    process = start()
    peak = _Peak(process.pid)
    stderr = process.communicate()[1] or ""
    wall_s = time.perf_counter() - began
    peak_mb = peak.stop()
    if process.returncode != 0:
        last = "\n".join(stderr.splitlines()[-_LAST_LINES:])
        raise ProcessFailedError(f"{process.args!r} failed with {process.returncode}:\n{last}")
    return Usage(wall_s, peak_mb)


class _Peak:
    """The most memory that a process had, in MiB.

    What wait4 says is no less than the peak of the process that has started it.
    """

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._peak_kb = 0
        self._has_ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def stop(self) -> float:
        self._has_ended.set()
        self._watcher.join()
        return self._peak_kb / 1024

    def _watch(self) -> None:
        while not self._has_ended.wait(_LOOK_S):
            try:
                found = re.search(r"^VmHWM:\s+(\d+) kB$", self._status.read_text(), re.MULTILINE)
            except OSError:
                return
            if found is not None:  # else it is a zombie
                self._peak_kb = int(found[1])


def quiet(argv: Sequence[str], **options: object) -> Callable[[], subprocess.Popen[str]]:
    """A process of this user; its stdout is discarded, its stderr kept in case it fails."""

    def start() -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(list(argv), **pipes, **options)  # type: ignore[call-overload,no-any-return]

    return start


def in_turn(
    starts: dict[str, Callable[[], subprocess.Popen[str]]], rounds: int
) -> dict[str, list[Usage]]:
    """Each process ``rounds`` times, one after the other, after a round that does not count."""
    measured: dict[str, list[Usage]] = {name: [] for name in starts}
    for number in range(rounds + 1):
        for name, start in starts.items():
            usage = time_process(start)
            if number:
                measured[name].append(usage)
    return measured


def wall(usages: Sequence[Usage]) -> float:
    """The median of the wall seconds."""
    return median(usage.wall_s for usage in usages)


def ratio(these: Sequence[Usage], those: Sequence[Usage]) -> float:
    """The median, round by round, of how many times as long ``these`` took as ``those``."""
    pairs = zip(these, those, strict=True)
    return median(this.wall_s / that.wall_s for this, that in pairs)
