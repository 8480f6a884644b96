"""Find and kill what remains after a cluster's daemons: slurmstepd processes and their jobs.

By Slurm's design, jobs survive the end of slurmd. So they are killed when the cluster stops, or
when a test crashes their node.
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
    """Kill every job step of one node, and all its descendants.

    slurmstepd first, so that it cannot report to slurmctld that its processes failed.
    """
    steps = _steps(folder, node)
    family = processes.with_descendants(steps)
    return processes.kill_all(steps) + processes.kill_all(family - steps)


def kill_slurm(folder: Path) -> list[Identity]:
    """Kill what still runs of Slurm and its jobs; return what was found."""
    return processes.kill_all(_family(folder, _SLURM))


def kill_postgres(folder: Path) -> list[Identity]:
    """Kill the backends of a killed server, which would exit only after a while."""
    return processes.kill_all(_daemons(folder, {"postgres"}))


def kill_everything(folder: Path) -> list[Identity]:
    """Kill all processes of this folder, servers and users' commands too; return what was found."""
    return processes.kill_all(_family(folder, _SLURM | _SERVERS) | _users_commands(folder))


def find(folder: Path) -> list[str]:
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
    """Return daemons and steps: by the marker, or by an open log, as a step has no environment."""
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
    """Return the users' processes, which would recreate the deleted folder by writing to it."""
    conf = f"{folder}/etc/slurm.conf"
    uids = user_ids(USERS)
    return {
        pid
        for pid in processes.pids()
        if processes.owner(pid) in uids and processes.environment(pid).get("SLURM_CONF") == conf
    }


def _job_processes(folder: Path) -> set[int]:
    """Return daemonized processes of jobs: by SLURM_JOB_ID, which shells with SLURM_CONF lack."""
    conf = f"{folder}/etc/slurm.conf"
    return {
        pid
        for pid in processes.pids()
        if (env := processes.environment(pid)).get("SLURM_CONF") == conf and "SLURM_JOB_ID" in env
    }
