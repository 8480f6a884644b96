"""Which Debian packages the cluster needs, and which of them this machine lacks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hpcflow.errors import InputError

_PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "useradd": "passwd",
}
"""A program that must be found, and the package that brings it."""

_PLUGINS = {
    "select_cons_tres.so": "slurm-wlm-basic-plugins",
    "accounting_storage_mysql.so": "slurm-wlm-mysql-plugin",
}
_PYTHON = Path("/usr/bin/python3")
_SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin:/usr/bin:/sbin:/bin"))


def find_program(name: str) -> str | None:
    """The path of a program; daemons live in /usr/sbin, which a user's PATH may lack."""
    return shutil.which(name, path=_SEARCH)


def missing() -> list[str]:
    """The packages to install before a cluster can start; empty when all are there."""
    lacking = [package for program, package in _PROGRAMS.items() if not find_program(program)]
    lacking += [package for plugin, package in _PLUGINS.items() if not _has_plugin(plugin)]
    if postgres_binaries() is None:
        lacking.append("postgresql")
    if not _PYTHON.exists():
        lacking.append("python3-venv")
    return lacking


def postgres_binaries() -> Path | None:
    """The newest Postgres server's bin folder; Debian keeps it out of PATH."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
    if newest is not None:
        return newest.parent
    elsewhere = find_program("initdb")
    return Path(elsewhere).resolve().parent if elsewhere else None


def _has_plugin(name: str) -> bool:
    return any(Path("/usr/lib").glob(f"*/slurm*/{name}"))


def install_command(packages: list[str]) -> str:
    """What to type as root. Without --no-install-recommends, apt would start services."""
    return "apt-get install -y --no-install-recommends " + " ".join(packages)


def require() -> None:
    """InputError unless this is root on a machine that has every package."""
    lacking = missing()
    if lacking:
        raise InputError(
            f"the development cluster needs {len(lacking)} Debian packages that are not here: "
            + ", ".join(lacking),
            next_action=f"as root: {install_command(lacking)}",
        )
    if os.geteuid() != 0:
        raise InputError(
            "the development cluster needs root: slurmd runs jobs as their users, two Unix users"
            " are created, node names go to /etc/hosts, GPUs are device nodes",
            next_action="sudo " + " ".join([sys.executable, "-m", "hpcflow.testing.cluster", "up"]),
        )
