"""Get other versions of Slurm from the packages of newer Debian releases.

apt downloads them with all their libraries into separate folders, and installs nothing. Slurm's
programs are patched to start with their own libc and to find the libraries beside it. Plugins have
no search path of their own and use the program's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hpcflow.errors import HpcflowError, InputError
from hpcflow.testing.cluster.files import locked, make_directory, write_atomic
from hpcflow.testing.cluster.progress import Progress

SUITES: Final = ("trixie", "forky")
"""Newer Debian releases; each has one version of Slurm."""

_FOLDER: Final = Path("/var/cache/hpcflow-slurm")
_SOURCE: Final = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    " http://deb.debian.org/debian {suite} main\n"
)
_PACKAGES: Final = ("slurm-client", "slurmctld", "slurmd", "slurmdbd", "slurm-wlm-basic-plugins",
                    "slurm-wlm-mysql-plugin")  # fmt: skip
_SUFFIX: Final = "-wlm"
"""Suffix of Debian's daemons; update-alternatives does not run here to link the usual names."""


def tree_of(version: str) -> Path:
    """Return the folder with ``bin``, ``sbin`` and ``plugins`` of a version such as ``26.05``.

    Raises:
        InputError: no newer Debian release has it.
    """
    found = {}
    for suite in SUITES:
        found[version_of(suite)] = _FOLDER / suite / "usr"
        if version in found:
            return found[version]
    raise InputError(
        f"no newer Debian release has Slurm {version}; they have {' and '.join(found)}",
        next_action=f"choose one of these; to look for newer ones, first: rm -r {_FOLDER}",
    )


def version_of(suite: str) -> str:
    """Unpack the Slurm of a Debian release, unless it is unpacked already; return its version.

    Raises:
        InputError: another user owns the folder for it.
    """
    if os.path.lexists(_FOLDER) and _FOLDER.lstat().st_uid != os.geteuid():
        raise InputError(
            f"{_FOLDER} belongs to another user, who could change what the cluster executes",
            next_action=f"look at it and remove it: ls -la {_FOLDER}",
        )
    folder = _FOLDER / suite
    said = folder / "version"
    make_directory(_FOLDER)
    with locked(_FOLDER / f"{suite}.lock"):
        if not said.exists():
            with Progress(sys.stderr).step(f"Slurm of Debian {suite}"):
                shutil.rmtree(folder, ignore_errors=True)
                write_atomic(said, _unpack(_download(suite, folder / "apt"), folder))
                shutil.rmtree(folder / "apt")
    return said.read_text()


def _download(suite: str, apt: Path) -> Iterable[Path]:
    """Download the packages with all libraries; the empty status file means none is installed."""
    values = {
        "Dir::State": apt,
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Sandbox::User": "root",  # only root can write the folder
        "Acquire::Languages": "none",
    }
    for name in ("lists/partial", "cache/archives/partial"):
        make_directory(apt / name)
    (apt / "status").touch()
    (apt / "sources.list").write_text(_SOURCE.format(suite=suite))
    (apt / "apt.conf").write_text("".join(f'{k} "{v}";\n' for k, v in values.items()))
    get = ["env", f"APT_CONFIG={apt}/apt.conf", "apt-get", "--quiet", "--assume-yes"]
    _run(*get, "update")
    _run(*get, "install", "--download-only", "--no-install-recommends", *_PACKAGES)
    return sorted((apt / "cache/archives").glob("*.deb"))


def _unpack(archives: Iterable[Path], folder: Path) -> str:
    """Unpack and patch the packages; return the version that slurmctld prints."""
    slurm, libraries = folder / "slurm", folder / "libraries"
    for archive in archives:
        is_slurm = archive.name.partition("_")[0] in _PACKAGES
        _run("dpkg-deb", "--extract", str(archive), str(slurm if is_slurm else libraries))
    (loader,) = libraries.glob("usr/lib/*/ld-linux-*.so.*")
    (plugins,) = slurm.glob("usr/lib/*/slurm-wlm")
    programs = [*slurm.glob("usr/bin/*"), *slurm.glob("usr/sbin/*")]
    patch = ["patchelf", "--set-interpreter", str(loader), "--force-rpath", "--set-rpath"]
    _run(*patch, f"{plugins}:{loader.parent}", *map(str, programs))
    for program in programs:
        if program.name.endswith(_SUFFIX):
            program.with_name(program.name.removesuffix(_SUFFIX)).symlink_to(program.name)
    (folder / "usr").symlink_to("slurm/usr")
    (folder / "usr/plugins").symlink_to(plugins)
    said = _run(str(folder / "usr/sbin/slurmctld"), "-V")
    return ".".join(said.split()[-1].split(".")[:2])


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise HpcflowError(
            f"{' '.join(argv)} failed with {done.returncode}:\n{done.stdout}{done.stderr}"[-1500:],
            next_action="see its output; it needs Debian's mirror and the package patchelf",
        )
    return done.stdout
