"""CPU time and memory of a program and all that it has started, from ``/proc``.

Only processes of this user are read. Those of a Slurm job are known by their environment, too: what
a program starts with srun is no child of it, nor is what left its parent before it was seen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Processes:
    """What the processes of a program have and had.

    Attributes:
        cpu_s: CPU seconds of those that live, and of the children that they have waited for.
        rss_bytes: their resident memory. What several share counts for each: so Slurm counts, too,
            where it has no cgroups.
        spike_bytes: how much more than now the one had that had the most more: memory that was
            there between this look and the one before only.
    """

    cpu_s: float
    rss_bytes: int
    spike_bytes: int
    count: int


@dataclass(frozen=True)
class _Stat:
    is_over: bool
    parent: int
    began: int
    cpu_ticks: int
    rss_pages: int


class ProcessTree:
    """The processes below ``root``.

    Args:
        root: process id. Of Slurm's own process of a job step, when all tasks of a node are meant.
        with_root: whether it is one of them.
        job_id: of the Slurm job, whose other processes on this node count as well.
        node: Slurm's name of this node. One machine may be several, as test clusters are: what runs
            on another of them does not count.
        proc: where the system shows its processes.
    """

    def __init__(
        self,
        root: int,
        *,
        with_root: bool,
        job_id: str | None = None,
        node: str | None = None,
        proc: str = "/proc",
    ) -> None:
        self._root, self._with_root, self._proc = root, with_root, proc
        marks = {"SLURM_JOB_ID": job_id, "SLURMD_NODENAME": node}
        if not job_id:  # some hide Slurm from their program with an empty one
            marks = {}
        self._marks = [f"\0{name}={value}\0".encode() for name, value in marks.items() if value]
        self._known: dict[int, int] = {}  # process id -> when it began: ids are given again
        self._highest: dict[int, int] = {}  # process id -> the most bytes that it ever had
        self._uid = os.getuid()

    def read(self) -> Processes:
        """What is there now.

        Raises:
            OSError: the system does not show its processes.
        """
        stats = self._own()
        below = self._below(stats)
        known, self._known = self._known, {pid: stats[pid].began for pid in below}
        before = {
            pid: most for pid, most in self._highest.items() if known[pid] == self._known.get(pid)
        }
        self._highest = {pid: self._highest_bytes(pid) for pid in below}
        rss = {pid: stats[pid].rss_pages * _PAGE_BYTES for pid in below}
        # The system says the most since a process began: what it had long ago, it has not had now.
        risen = [pid for pid in below if self._highest[pid] > before.get(pid, 0)]
        spikes = [self._highest[pid] - rss[pid] for pid in risen]
        return Processes(
            cpu_s=sum(stats[pid].cpu_ticks for pid in below) / _TICKS_S,
            rss_bytes=sum(rss.values()),
            spike_bytes=max([0, *spikes]),
            count=len(below),
        )

    def _own(self) -> dict[int, _Stat]:
        found = {}
        with os.scandir(self._proc) as entries:
            for entry in entries:
                if not entry.name.isdecimal():
                    continue
                try:
                    if entry.stat().st_uid == self._uid:
                        found[int(entry.name)] = _parse(_read(f"{entry.path}/stat"))
                except (OSError, ValueError, IndexError):
                    continue  # it has ended meanwhile
        return found

    def _below(self, stats: dict[int, _Stat]) -> list[int]:
        children: dict[int, list[int]] = {}
        for pid, stat in stats.items():
            children.setdefault(stat.parent, []).append(pid)
        known = [pid for pid, at in self._known.items() if pid in stats and stats[pid].began == at]
        todo = [*known, *children.get(self._root, [])]
        if self._with_root and self._root in stats:
            todo.append(self._root)
        found = _with_children(todo, children)
        marked = [pid for pid in stats if pid not in found and self._is_marked(pid)]
        found |= _with_children(marked, children)
        return sorted(found - {os.getpid()})

    def _is_marked(self, pid: int) -> bool:
        """Whether a process was started in the job, whichever its parent is."""
        if not self._marks:
            return False
        try:
            environ = b"\0" + Path(self._proc, str(pid), "environ").read_bytes()
        except OSError:
            return False
        return all(mark in environ for mark in self._marks)

    def _highest_bytes(self, pid: int) -> int:
        try:
            status = _read(f"{self._proc}/{pid}/status")
            begin = status.index(b"VmHWM:") + 6
            return int(status[begin : status.index(b"kB", begin)]) * 1024
        except (OSError, ValueError):
            return 0  # it has ended, or has no memory any more


def _with_children(pids: list[int], children: dict[int, list[int]]) -> set[int]:
    todo = list(pids)
    found: set[int] = set()
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def began_at(pid: int, proc: str = "/proc") -> int | None:
    """When a process began, in the system's own unit; None where there is none, or none that goes
    on."""
    try:
        stat = _parse(_read(f"{proc}/{pid}/stat"))
    except (OSError, ValueError, IndexError):
        return None
    return None if stat.is_over else stat.began


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _parse(stat: bytes) -> _Stat:
    """proc(5): the name, in parentheses, may hold anything; what follows is numbers."""
    words = stat[stat.rindex(b")") + 2 :].split()
    return _Stat(
        is_over=words[0] in (b"Z", b"X"),
        parent=int(words[1]),
        began=int(words[19]),
        cpu_ticks=sum(map(int, words[11:15])),
        rss_pages=int(words[21]),
    )
