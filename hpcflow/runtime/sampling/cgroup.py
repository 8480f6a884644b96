"""Read CPU time and memory of the job's cgroup on this node, if Slurm has made one.

The page cache does not count as memory: the kernel frees it before it kills a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CgroupUse:
    """What the job has used; None if its cgroup does not report it.

    Attributes:
        cpu_s: CPU seconds since the job began.
        mem_bytes: memory without the page cache.
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
