"""What a cluster leaves behind when its daemons end: slurmstepd processes and the jobs below them.

slurmd's end does not end jobs, by design of Slurm. A cluster that is taken down must end them, for
nobody would know them any more; a test that lets a node die must end those of this node.
"""

from __future__ import annotations

from pathlib import Path

from hpcflow.testing.cluster import processes
from hpcflow.testing.cluster.accounting import USERS
from hpcflow.testing.cluster.machine import user_ids
from hpcflow.testing.cluster.processes import Identity

_SLURM = {"slurmctld", "slurmd", "slurmstepd", "slurmdbd", "munged", "mariadbd"}
_SERVERS = {"postgres", "rclone"}


def kill_node_jobs(folder: Path, node: str) -> list[Identity]:
    """Kill every job step of one node, and all that it started.

    slurmstepd first: it must not live to tell slurmctld that its processes failed.
    """
    steps = _steps(folder, node)
    family = processes.with_descendants(steps)
    return processes.kill_all(steps) + processes.kill_all(family - steps)


def kill_slurm(folder: Path) -> list[Identity]:
    """Kill what still runs of Slurm and of its jobs; returns what was found."""
    return processes.kill_all(_family(folder, _SLURM))


def kill_postgres(folder: Path) -> list[Identity]:
    """Kill the backends that a killed server has left; they end by themselves, but not at once."""
    return processes.kill_all(_daemons(folder, {"postgres"}))


def kill_everything(folder: Path) -> list[Identity]:
    """Kill all that still runs of this folder, servers and users' commands too; what was found."""
    return processes.kill_all(_family(folder, _SLURM | _SERVERS) | _users_commands(folder))


def find(folder: Path) -> list[str]:
    """What runs of this folder's cluster, as ``pid program``, for a human."""
    found = _family(folder, _SLURM | _SERVERS)
    return sorted(f"{pid} {processes.program(pid)}" for pid in found if Identity.of(pid))


def _steps(folder: Path, node: str) -> set[int]:
    log = str(folder / "log" / f"slurmd.{node}.steps.log")
    candidates = (pid for pid in processes.pids() if processes.program(pid) == "slurmstepd")
    return {pid for pid in candidates if log in processes.open_files(pid)}


def _family(folder: Path, programs: set[str]) -> set[int]:
    roots = _daemons(folder, programs) | _job_processes(folder)
    return processes.with_descendants(roots)


def _daemons(folder: Path, programs: set[str]) -> set[int]:
    """Daemons and steps: by the marker, or by an open log, for a step loses its environment."""
    logs = f"{folder}/log/"
    return {
        pid
        for pid in processes.pids()
        if processes.program(pid) in programs
        and (
            processes.environment(pid).get(processes.MARKER, "").startswith(f"{folder}:")
            or any(path.startswith(logs) for path in processes.open_files(pid))
        )
    }


def _users_commands(folder: Path) -> set[int]:
    """What the two users have started, whose caller may have been killed: a daemon, for example.

    It would go on writing into a folder that is deleted, and so make it again.
    """
    conf = f"{folder}/etc/slurm.conf"
    uids = user_ids(USERS)
    return {
        pid
        for pid in processes.pids()
        if processes.owner(pid) in uids and processes.environment(pid).get("SLURM_CONF") == conf
    }


def _job_processes(folder: Path) -> set[int]:
    """Processes of jobs that have left the family tree (daemonized) but kept the environment.

    A shell in which someone has set SLURM_CONF has no SLURM_JOB_ID, and is left alone.
    """
    conf = f"{folder}/etc/slurm.conf"
    return {
        pid
        for pid in processes.pids()
        if (env := processes.environment(pid)).get("SLURM_CONF") == conf and "SLURM_JOB_ID" in env
    }
