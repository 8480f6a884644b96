"""Timing whole processes, and a goal next to what was measured.

Absolute seconds mean little on a shared machine, so a goal is a ratio against a peer or a limit
that is measured in the same run, the two in turn.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


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


def time_process(start: Callable[[], subprocess.Popen[str]]) -> Usage:
    """Run one process to its end and read what the kernel says about it.

    Raises:
        RuntimeError: it failed; a failed run has no time.
    """
    began = time.perf_counter()
    process = start()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args!r} failed with {process.returncode}")
    return Usage(wall_s, usage.ru_maxrss / 1024)


def quiet(argv: Sequence[str], **options: object) -> Callable[[], subprocess.Popen[str]]:
    """A process of this user whose output is thrown away."""

    def start() -> subprocess.Popen[str]:
        null = subprocess.DEVNULL
        return subprocess.Popen(list(argv), stdout=null, stderr=null, **options)  # type: ignore[call-overload,no-any-return]

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
