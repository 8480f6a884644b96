"""Find the processes of a local job by a mark in their environment.

All processes, from the submitting one to the last child of the script, inherit the mark, in any
session. Process ids are no proof, because the kernel reuses them.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK_VARIABLE: Final = "HPCFLOW_LOCAL_MARK"

_PROC: Final = Path("/proc")
_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD of the kernel's include/linux/sched.h


@dataclass(frozen=True)
class Machine:
    """A machine or container, in which processes can see each other.

    Attributes:
        host: its name, which can change.
        boot_id: changes with each boot; a container has that of its host.
        pid_namespace: differs in each container.
    """

    host: str
    boot_id: str
    pid_namespace: str

    def sees(self, other: Machine) -> bool:
        """Return whether this machine can see the processes of ``other``."""
        is_renamed = self.pid_namespace == other.pid_namespace
        return self.boot_id == other.boot_id and (self.host == other.host or is_renamed)

    def was_before(self, other: Machine) -> bool:
        """Return whether ``other`` is this machine before a reboot, so its processes are gone."""
        return self.host == other.host and self.boot_id != other.boot_id


def this_machine() -> Machine:
    """Return the machine or container of this process."""
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return Machine(socket.gethostname(), boot_id, str((_PROC / "self/ns/pid").readlink()))


def carriers(marks: Collection[str]) -> dict[str, list[int]]:
    """Return mark -> ids of the living processes that have it.

    While /proc is being read, a process may start another and end, so that neither is seen. So a
    mark without processes is searched for twice.
    """
    found = _scan(marks)
    unseen = [mark for mark, pids in found.items() if not pids]
    return found | _scan(unseen) if unseen else found


def _scan(marks: Collection[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {mark: [] for mark in marks}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (mark := _mark_of(entry)) in found:
            found[mark].append(int(entry.name))
    return found


def _mark_of(process: Path) -> str:
    try:
        environment = (process / "environ").read_bytes()
        is_whole = bool(environment)
        while not is_whole:  # read again if an exec was under way
            was_executed = _is_being_executed(process)
            environment = (process / "environ").read_bytes()
            is_whole = bool(environment) or not (was_executed or _is_being_executed(process))
    except OSError:
        return ""  # it has ended, or is another user's
    prefix = f"{MARK_VARIABLE}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix):
            return variable[len(prefix) :].decode(errors="replace")
    return ""


def _is_being_executed(process: Path) -> bool:
    """Return whether a process is inside exec, before its environment is visible.

    Then ``env_end`` of proc_pid_stat(5) is 0, as for kernel threads and ended processes.
    """
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    state, flags, env_end = fields[0], int(fields[6]), int(fields[48])
    return env_end == 0 and state not in (b"Z", b"X") and not flags & _KERNEL_THREAD
