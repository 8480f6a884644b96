"""Identify processes, even if a pid is reused, and find orphans."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcflow.testing.cluster.polling import poll

PROC = Path("/proc")
MARKER = "HPCFLOW_CLUSTER_DAEMON"
"""Every daemon has ``MARKER=<folder>:<name>`` in its environment, and its children inherit it. So a
daemon is found even if its starter was killed before it recorded the pid."""


@dataclass(frozen=True)
class Identity:
    """One process: its pid, its start in clock ticks since boot, and the boot id."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Return the process with this pid now; None without one, or for a zombie."""
        fields = _stat(pid)
        if fields is None or fields[0] in ("Z", "X"):
            return None
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return cls(pid=pid, started=int(fields[19]), boot=boot)

    def alive(self) -> bool:
        return Identity.of(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Signal this process; return False if it has ended.

        A pidfd prevents that another process gets the pid between check and signal.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; the name before it may be any text."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def environment(pid: int) -> dict[str, str]:
    """Return the environment that the process was started with; empty if it cannot be read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    words = raw.decode(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def owner(pid: int) -> int | None:
    """Return the uid of a process; None if it has ended."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def arguments(pid: int) -> list[str]:
    """Return the command line of a process; empty if it cannot be read."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").split("\0")[:-1]


def program(pid: int) -> str:
    """Return the name of the program that the process executes; empty if it cannot be read.

    Debian's suffix is removed: there, slurmd is a link to slurmd-wlm.
    """
    try:
        name = (PROC / str(pid) / "exe").readlink().name
        return name.removesuffix(" (deleted)").removesuffix("-wlm")
    except OSError:
        return ""


def open_files(pid: int) -> Iterator[str]:
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            yield str(entry.readlink())
    except OSError:
        return  # it closed the file, ended, or is not readable


def parent(pid: int) -> int:
    """Return the parent's pid; 0 if the process has ended."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def with_descendants(roots: Iterable[int]) -> set[int]:
    """Return these processes and their descendants, as far as the parents still run."""
    found = set(roots)
    parents = {pid: parent(pid) for pid in pids()}
    while True:
        more = {pid for pid, above in parents.items() if above in found} - found
        if not more:
            return found
        found |= more


def marked(value: str) -> set[int]:
    return {pid for pid in pids() if environment(pid).get(MARKER) == value}


def kill_all(victims: Iterable[int]) -> list[Identity]:
    """Send SIGKILL to each and wait for their ends; return those that existed."""
    identities = [identity for pid in victims if (identity := Identity.of(pid))]
    killed = [identity for identity in identities if identity.send(signal.SIGKILL)]
    poll(lambda: not any(identity.alive() for identity in killed), 10, "processes survive SIGKILL")
    return killed
