"""Change what is outside the cluster's folder: /etc/hosts, Unix users, cgroups of killed jobs.

All clusters of the machine share the first two, so both are changed under one lock.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster import processes

HOSTS = Path("/etc/hosts")
FREEZER = Path("/sys/fs/cgroup/freezer")
"""The cgroup hierarchy with which Slurm 22.05 tracks processes; few containers have it."""
COMMENT = "hpcflow development cluster"
"""The comment in /etc/passwd of users that were created here and may be deleted here."""

_BLOCK = re.compile(
    r"# BEGIN hpcflow cluster (?P<folder>\S+)\n.*?# END hpcflow cluster (?P=folder)\n", re.DOTALL
)


def remove_cgroups() -> None:
    """Remove the cgroups of killed job steps in :data:`FREEZER`, unless Slurm still runs here."""
    if any(processes.program(pid) in {"slurmd", "slurmstepd"} for pid in processes.pids()):
        return
    for root in FREEZER.glob("slurm_*"):
        for folder, _, _ in os.walk(root, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - os.walk gives text


@contextmanager
def _locked_hosts() -> Iterator[TextIO]:
    """Open /etc/hosts, locked; it is written in place, because in containers it is a mount."""
    with HOSTS.open("r+") as hosts:
        fcntl.flock(hosts, fcntl.LOCK_EX)
        yield hosts


def add_host_names(folder: Path, names: Iterable[str]) -> None:
    """Add the node names, which torchrun's rendezvous needs, to the cluster's own block."""
    lines = "".join(f"127.0.0.1 {name}\n" for name in names)
    block = f"# BEGIN hpcflow cluster {folder}\n{lines}# END hpcflow cluster {folder}\n"
    _rewrite(folder, block)


def remove_host_names(folder: Path) -> None:
    """Remove this cluster's block, and those of deleted folders."""
    _rewrite(folder, "")


def clusters() -> list[str]:
    """Return the folders of all clusters that are up: they have a block in /etc/hosts."""
    return [found["folder"] for found in _BLOCK.finditer(HOSTS.read_text())]


def _rewrite(folder: Path, block: str) -> None:
    def kept(found: re.Match[str]) -> str:
        owner = found["folder"]
        return found[0] if owner != str(folder) and Path(owner).exists() else ""

    with _locked_hosts() as hosts:
        before = hosts.read()
        after = _BLOCK.sub(kept, before)
        if block and after and not after.endswith("\n"):
            after += "\n"
        after += block
        if after != before:
            hosts.seek(0)
            hosts.write(after)
            hosts.truncate()


def ensure_user(name: str, home: Path) -> pwd.struct_passwd:
    """Return the Unix user of this name, created if missing.

    A user of a cluster whose folder was deleted gets this home: Slurm's ``--get-user-env`` logs in
    there.
    """
    with _locked_hosts():
        entry = _entry(name)
        if entry is None:
            _admin("useradd", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/bash",
                   "--user-group", "--comment", COMMENT, name)  # fmt: skip
        elif entry.pw_gecos == COMMENT and not Path(entry.pw_dir).exists():
            _move_home(entry, home)
    return pwd.getpwnam(name)


def remove_users(names: Iterable[str], folder: Path) -> None:
    """Delete the users that a cluster created, unless another cluster is up."""
    others = [other for other in clusters() if other != str(folder)]
    with _locked_hosts():
        for name in names:
            entry = _entry(name)
            if entry is None or entry.pw_gecos != COMMENT:
                continue
            if not others:
                _admin("userdel", name)
            elif not Path(entry.pw_dir).exists():
                _move_home(entry, Path(others[0], "home", name))


def user_ids(names: Iterable[str]) -> set[int]:
    """Return the uids of these users, if they exist."""
    return {entry.pw_uid for name in names if (entry := _entry(name)) is not None}


def _move_home(entry: pwd.struct_passwd, home: Path) -> None:
    """Change a user's home with vipw: usermod refuses while the user has a process."""
    old = entry.pw_dir.replace(".", "[.]")
    edit = f"sed -i 's|^\\({entry.pw_name}:.*\\):{old}:|\\1:{home}:|'"
    _admin("vipw", env={**os.environ, "EDITOR": edit, "VISUAL": edit})


def _entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _admin(*argv: str, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise HpcflowError(
            f"{' '.join(argv)} failed with {done.returncode}: {done.stderr.strip()}",
            next_action="see what holds /etc/passwd, then try again",
        )
