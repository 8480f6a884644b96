"""Read CPU time and memory of a program: from ``/proc``, and from the job's cgroup.

Only processes of this user are read. Those of a Slurm job are also found by their environment:
a process started with srun is not a child of the program, nor is one whose parent ended before it
was seen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Processes:
    """The resources of the processes of a program.

    Attributes:
        cpu_s: CPU seconds of the running processes, and of children that they have waited for.
        rss_bytes: their resident memory. Shared memory counts for each, as in Slurm without
            cgroups.
        spike_bytes: the largest difference between a process's peak since the last sample and its
            memory now.
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
    """The descendants of ``root``.

    Args:
        root: process id; to count all tasks of a node, that of Slurm's process of the job step.
        with_root: whether ``root`` itself counts.
        job_id: the Slurm job, whose other processes on this node count, too.
        node: Slurm's name of this node. In a test cluster, one machine may be several nodes:
            processes of the others do not count.
        proc: the path of procfs.
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
        if not job_id:  # some users hide Slurm from their program with an empty id
            marks = {}
        self._marks = [f"\0{name}={value}\0".encode() for name, value in marks.items() if value]
        self._known: dict[int, int] = {}  # process id -> start time, because ids are reused
        self._highest: dict[int, int] = {}  # process id -> its peak memory in bytes
        self._uid = os.getuid()

    def read(self) -> Processes:
        """Sample the processes. Raise OSError if procfs cannot be read."""
        stats = self._own()
        below = self._below(stats)
        known, self._known = self._known, {pid: stats[pid].began for pid in below}
        before = {
            pid: most for pid, most in self._highest.items() if known[pid] == self._known.get(pid)
        }
        self._highest = {pid: self._highest_bytes(pid) for pid in below}
        rss = {pid: stats[pid].rss_pages * _PAGE_BYTES for pid in below}
        # VmHWM is the peak since a process began; only a new peak is since the last sample.
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
        """Return whether the environment of a process is that of the job."""
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
            return 0  # it has ended, or is a zombie


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
    """Return the start time of a process, in clock ticks; None if it has ended."""
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
    """Parse ``/proc/PID/stat``. The name, in parentheses, may contain any character: proc(5)."""
    words = stat[stat.rindex(b")") + 2 :].split()
    return _Stat(
        is_over=words[0] in (b"Z", b"X"),
        parent=int(words[1]),
        began=int(words[19]),
        cpu_ticks=sum(map(int, words[11:15])),
        rss_pages=int(words[21]),
    )


@dataclass(frozen=True)
class CgroupUse:
    """What the job has used; None if its cgroup does not report it.

    Attributes:
        cpu_s: CPU seconds since the job began.
        mem_bytes: memory without the page cache, which the kernel frees before it kills a job.
        highest_bytes: the peak, including the page cache.
    """

    cpu_s: float | None
    mem_bytes: int | None
    highest_bytes: int | None


class JobCgroup:
    """The folders of a job's cgroup: one in version 2, one for each controller in version 1."""

    def __init__(self, unified: Path | None, memory: Path | None, cpu: Path | None) -> None:
        self._unified, self._memory, self._cpu = unified, memory, cpu

    @property
    def is_there(self) -> bool:
        """Return whether Slurm has made any."""
        return any((self._unified, self._memory, self._cpu))

    def read(self) -> CgroupUse:
        if self._unified is not None:
            usage_us = _fields(self._unified / "cpu.stat").get("usage_usec")
            stat = _fields(self._unified / "memory.stat")
            kernel = stat.get("kernel", stat.get("slab_unreclaimable", 0))
            return CgroupUse(
                cpu_s=None if usage_us is None else usage_us / 1e6,
                mem_bytes=stat["anon"] + stat.get("shmem", 0) + kernel if "anon" in stat else None,
                highest_bytes=_number(self._unified / "memory.peak"),
            )
        stat = _fields(self._memory / "memory.stat") if self._memory else {}
        rss = stat.get("total_rss")
        usage_ns = _number(self._cpu / "cpuacct.usage") if self._cpu else None
        return CgroupUse(
            cpu_s=None if usage_ns is None else usage_ns / 1e9,
            mem_bytes=None if rss is None else rss + stat.get("total_shmem", 0),
            highest_bytes=_number(self._memory / "memory.max_usage_in_bytes")
            if self._memory
            else None,
        )


def find_cgroup(
    job_id: str | None,
    content: str | None = None,
    mount: Path = Path("/sys/fs/cgroup"),
    *,
    sluid: str | None = None,
) -> JobCgroup:
    """Return the cgroup of the Slurm job that this process belongs to.

    Its folder is ``job_ID``. With version 2 of cgroups, and Slurm since 26.05, it is only the job's
    SLUID, unless cgroup.conf has ``CgroupJobIdPaths=yes``.

    Args:
        content: the content of ``/proc/self/cgroup``; read if not given.
        sluid: ``SLURM_JOB_SLUID``, if Slurm sets it.
    """
    if content is None:
        try:
            content = Path("/proc/self/cgroup").read_text()
        except OSError:
            content = ""
    unified = memory = cpu = None
    of_job = {f"job_{job_id}", sluid} - {None, ""}
    for line in content.splitlines() if job_id else []:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = path.split("/")
        end = next((index for index, name in enumerate(names) if name in of_job), None)
        if end is None:
            continue
        below = "/".join(names[1 : end + 1])
        if not controllers:
            unified = _first_folder(mount / below, mount / "unified" / below)
            if unified is not None and not (unified / "memory.stat").exists():
                unified = None  # if both are mounted, the controllers are in version 1
        elif "memory" in controllers.split(","):
            memory = _first_folder(mount / "memory" / below)
        elif "cpuacct" in controllers.split(","):
            cpu = _first_folder(mount / controllers / below, mount / "cpuacct" / below)
    return JobCgroup(unified, memory, cpu)


def _first_folder(*folders: Path) -> Path | None:
    return next((folder for folder in folders if folder.is_dir()), None)


def _fields(path: Path) -> dict[str, int]:
    """Read a file with ``name number`` on each line."""
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    except (OSError, ValueError):
        return {}


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
