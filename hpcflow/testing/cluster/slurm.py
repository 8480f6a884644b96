"""Slurm's own daemons, their files, and the commands that ask them. The texts: slurm_conf.py."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster import slurm_conf
from hpcflow.testing.cluster.daemon import CLEAN_ENVIRONMENT, Daemon
from hpcflow.testing.cluster.files import make_directory, write_atomic, write_if_changed
from hpcflow.testing.cluster.packages import find_program
from hpcflow.testing.cluster.ports import answers
from hpcflow.testing.cluster.settings import Settings, Size

_CONF = "etc/slurm.conf"


def conf_path(folder: Path) -> Path:
    """What SLURM_CONF must name. Slurm finds its other files, slurmdbd.conf too, beside it."""
    return folder / _CONF


def write_files(folder: Path, settings: Settings) -> bool:
    """Write configuration, folders and GPU devices. True when running daemons must be restarted."""
    for name in ("etc", "log", "run"):
        make_directory(folder / name)
    make_directory(folder / "state", 0o700)
    for node in settings.size.node_names:
        make_directory(folder / "spool" / node)
    _make_gpus(folder, settings.size)
    texts = {
        "gres.conf": slurm_conf.gres_conf(folder, settings.size),
        "cgroup.conf": slurm_conf.cgroup_conf(),
        "plugstack.conf": "",
        "slurm.conf": slurm_conf.slurm_conf(folder, settings),
    }
    etc = folder / "etc"
    write_atomic(etc / "slurmdbd.conf", slurm_conf.slurmdbd_conf(folder, settings), 0o600)
    changed = [write_if_changed(etc / name, text) for name, text in texts.items()]
    return any(changed)


def _make_gpus(folder: Path, size: Size) -> None:
    """Device nodes that are the null device by another name: nothing a job does to them matters."""
    gpus = make_directory(folder / "gpus")
    for node in size.node_names:
        for index in range(size.gpus):
            path = gpus / f"{node}gpu{index}"
            if path.exists():
                continue
            try:
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            except PermissionError:
                # A container without CAP_MKNOD: slurmd only wants the path to exist.
                path.touch()


def slurmctld(folder: Path) -> Daemon:
    """The controller."""
    argv = [find_program("slurmctld") or "slurmctld", "-D"]
    return _daemon(
        folder, "slurmctld", argv, lambda: "is UP" in command(folder, "scontrol", "ping")
    )


def slurmdbd(folder: Path, settings: Settings) -> Daemon:
    """The accounting daemon."""
    argv = [find_program("slurmdbd") or "slurmdbd", "-D"]
    port = settings.ports.slurmdbd
    return _daemon(folder, "slurmdbd", argv, lambda: answers(port) and _accounting_answers(folder))


def slurmd(folder: Path, settings: Settings, node: str) -> Daemon:
    """One node's daemon."""
    argv = [find_program("slurmd") or "slurmd", "-D", "-N", node]
    port = settings.ports.slurmd + settings.size.node_names.index(node)
    return _daemon(folder, f"slurmd.{node}", argv, lambda: answers(port))


def _daemon(folder: Path, name: str, argv: list[str], ready: Callable[[], bool]) -> Daemon:
    return Daemon(folder, name, argv, ready=ready, env=environment(folder))


def environment(folder: Path) -> dict[str, str]:
    """What Slurm's commands need to find this cluster and no other."""
    return {"SLURM_CONF": str(conf_path(folder))}


def run(
    folder: Path, *argv: str, timeout_s: float = 30, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command as the cluster's operator (root), in a clean environment."""
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**CLEAN_ENVIRONMENT, **environment(folder)},
    )
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise HpcflowError(
            f"{' '.join(argv)} failed with {done.returncode}: {said}",
            next_action=f"see the logs: ls -t {folder}/log",
        )
    return done


def command(folder: Path, *argv: str) -> str:
    """What a query prints; empty when it failed or hung, for use in polls."""
    try:
        return run(folder, *argv, timeout_s=15, check=False).stdout
    except subprocess.TimeoutExpired:
        return ""


def _accounting_answers(folder: Path) -> bool:
    try:
        return run(folder, "sacctmgr", "-n", "show", "cluster", check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
