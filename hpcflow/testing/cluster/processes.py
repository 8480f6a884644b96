"""Which process is ours: identity that survives the reuse of a pid, and the search for orphans.

Starting and stopping lives in daemon.py. Nothing here knows Slurm.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcflow.testing.cluster.polling import poll

PROC = Path("/proc")
MARKER = "HPCFLOW_CLUSTER_DAEMON"
"""Every daemon carries ``MARKER=<folder>:<name>`` in its environment, and its children inherit it.
So a daemon is found again even when the starter was killed before it wrote the pid down."""


@dataclass(frozen=True)
class Identity:
    """One process: its pid, when it started (clock ticks since boot), and during which boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The process that has this pid now; None when there is none, or only a zombie."""
        fields = _stat(pid)
        if fields is None or fields[0] in ("Z", "X"):
            return None
        return cls(pid=pid, started=int(fields[19]), boot=_boot())

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Identity.of(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Signal this very process; False when it is gone.

        Through a pidfd, so that no other process can get the pid between the look and the signal.
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
    """The fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def pids() -> Iterator[int]:
    """Every process of the machine."""
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty when it cannot be read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    words = raw.decode(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def owner(pid: int) -> int | None:
    """The uid that it runs as; None when it is gone."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def arguments(pid: int) -> list[str]:
    """The command line as the process shows it; empty when it cannot be read."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").split("\0")[:-1]


def program(pid: int) -> str:
    """The name of the program that the process executes; empty when it cannot be read.

    Without Debian's suffix: there, slurmd is a link to slurmd-wlm.
    """
    try:
        name = (PROC / str(pid) / "exe").readlink().name
        return name.removesuffix(" (deleted)").removesuffix("-wlm")
    except OSError:
        return ""


def open_files(pid: int) -> Iterator[str]:
    """The paths that the process holds open."""
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            yield str(entry.readlink())
    except OSError:
        return  # it closed the file, or ended, or is not ours to look at


def parent(pid: int) -> int:
    """The parent's pid; 0 when the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def with_descendants(roots: Iterable[int]) -> set[int]:
    """These processes and all that they started, as far as the family tree still shows it."""
    found = set(roots)
    parents = {pid: parent(pid) for pid in pids()}
    while True:
        more = {pid for pid, above in parents.items() if above in found} - found
        if not more:
            return found
        found |= more


def marked(value: str) -> set[int]:
    """The processes that carry this marker."""
    return {pid for pid in pids() if environment(pid).get(MARKER) == value}


def kill_all(victims: Iterable[int]) -> list[Identity]:
    """SIGKILL each and wait until they are gone; returns those that were really there."""
    identities = [identity for pid in victims if (identity := Identity.of(pid))]
    killed = [identity for identity in identities if identity.send(signal.SIGKILL)]
    poll(lambda: not any(identity.alive() for identity in killed), 10, "processes survive SIGKILL")
    return killed
