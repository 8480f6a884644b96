"""Slurm's daemons, their files and commands. The text of the files is in slurm_conf.py."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster import slurm_conf
from hpcflow.testing.cluster.daemon import CLEAN_ENVIRONMENT, Daemon
from hpcflow.testing.cluster.files import make_directory, write_atomic, write_if_changed
from hpcflow.testing.cluster.layouts import Layout
from hpcflow.testing.cluster.machine import FREEZER
from hpcflow.testing.cluster.packages import find_program
from hpcflow.testing.cluster.ports import answers
from hpcflow.testing.cluster.releases import tree_of
from hpcflow.testing.cluster.settings import Settings

_CONF = "etc/slurm.conf"
PROGRAMS = "slurm"
"""A link to Slurm's programs and plugins, if its version is not the installed one."""


def conf_path(folder: Path) -> Path:
    """Return the path for SLURM_CONF; Slurm's other files, slurmdbd.conf too, are beside it."""
    return folder / _CONF


def write_files(folder: Path, settings: Settings) -> bool:
    """Write configuration, folders and GPU devices; return whether daemons must be restarted."""
    for name in ("etc", "log", "run"):
        make_directory(folder / name)
    make_directory(folder / "state", 0o700)
    for node in settings.node_names:
        make_directory(folder / "spool" / node)
    _make_gpus(folder, settings.layout)
    programs = folder / PROGRAMS
    if settings.slurm is not None and not programs.exists():
        programs.unlink(missing_ok=True)
        programs.symlink_to(tree_of(settings.slurm))
    texts = {
        "gres.conf": slurm_conf.gres_conf(folder, settings.layout),
        "cgroup.conf": slurm_conf.cgroup_conf(settings.slurm),
        "plugstack.conf": "",
        "slurm.conf": slurm_conf.slurm_conf(
            folder, settings, has_cgroups=settings.slurm is None and os.access(FREEZER, os.W_OK)
        ),
    }
    etc = folder / "etc"
    write_atomic(etc / "slurmdbd.conf", slurm_conf.slurmdbd_conf(folder, settings), 0o600)
    write_if_changed(etc / "task-prolog", slurm_conf.task_prolog(folder), 0o755)
    changed = [write_if_changed(etc / name, text) for name, text in texts.items()]
    return any(changed)


def _make_gpus(folder: Path, layout: Layout) -> None:
    """Create GPU devices, which are null devices, so that jobs can use them without effect."""
    gpus = make_directory(folder / "gpus")
    for name, node in layout.nodes.items():
        for index in range(sum(each.count for each in node.gres if each.name == "gpu")):
            path = gpus / f"{name}gpu{index}"
            if path.exists():
                continue
            try:
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            except PermissionError:
                # A container without CAP_MKNOD: slurmd only wants the path to exist.
                path.touch()


def slurmctld(folder: Path) -> Daemon:
    argv = [program(folder, "slurmctld"), "-D"]
    return _daemon(
        folder, "slurmctld", argv, lambda: "is UP" in command(folder, "scontrol", "ping")
    )


def slurmdbd(folder: Path, settings: Settings) -> Daemon:
    argv = [program(folder, "slurmdbd"), "-D"]
    port = settings.ports.slurmdbd
    return _daemon(folder, "slurmdbd", argv, lambda: answers(port) and _accounting_answers(folder))


def slurmd(folder: Path, settings: Settings, node: str) -> Daemon:
    stepd = ["-d", program(folder, "slurmstepd")] if settings.slurm else []
    argv = [program(folder, "slurmd"), "-D", "-N", node, *stepd]
    port = settings.ports.slurmd + settings.node_names.index(node)
    return _daemon(folder, f"slurmd.{node}", argv, lambda: answers(port))


def program(folder: Path, name: str) -> str:
    """Return the path of one of Slurm's programs: the cluster's own, else the installed one."""
    own = folder / PROGRAMS / "sbin" / name
    return str(own) if own.exists() else find_program(name) or name


def path_of(folder: Path, after: str) -> str:
    """Return a ``PATH``: the cluster's own programs, if any, then ``after``."""
    own = folder / PROGRAMS
    return f"{own}/bin:{own}/sbin:{after}" if own.exists() else after


def _daemon(folder: Path, name: str, argv: list[str], ready: Callable[[], bool]) -> Daemon:
    return Daemon(folder, name, argv, ready=ready, env=_clean(folder))


def _clean(folder: Path) -> dict[str, str]:
    path = path_of(folder, CLEAN_ENVIRONMENT["PATH"])
    return {**CLEAN_ENVIRONMENT, **environment(folder), "PATH": path}


def environment(folder: Path) -> dict[str, str]:
    return {"SLURM_CONF": str(conf_path(folder))}


def run(
    folder: Path, *argv: str, timeout_s: float = 30, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command as the cluster's operator (root), in a clean environment."""
    env = _clean(folder)
    # execvp searches the PATH of this process, not that of the new one.
    found = shutil.which(argv[0], path=env["PATH"]) or argv[0]
    done = subprocess.run(
        [found, *argv[1:]],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=env,
    )
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise HpcflowError(
            f"{' '.join(argv)} failed with {done.returncode}: {said}",
            next_action=f"see the logs: ls -t {folder}/log",
        )
    return done


def command(folder: Path, *argv: str) -> str:
    """Return the output of a query; empty if it failed or hung, for use in polls."""
    try:
        return run(folder, *argv, timeout_s=15, check=False).stdout
    except subprocess.TimeoutExpired:
        return ""


def _accounting_answers(folder: Path) -> bool:
    try:
        return run(folder, "sacctmgr", "-n", "show", "cluster", check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
