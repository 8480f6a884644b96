"""Find the processes of a local job by a mark in their environment.

From the process that submits a job to the last child of its script, whichever of them is killed or
moves to another session keeps the mark. Process ids are used again, and prove nothing.
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
    """Where processes can see each other.

    Attributes:
        host: its name, which can change.
        boot_id: changes whenever it is started; that of a container is its host's.
        pid_namespace: another one in every container.
    """

    host: str
    boot_id: str
    pid_namespace: str

    def sees(self, other: Machine) -> bool:
        """Whether the processes of ``other``, if they live, can be seen from here."""
        is_renamed = self.pid_namespace == other.pid_namespace
        return self.boot_id == other.boot_id and (self.host == other.host or is_renamed)

    def was_before(self, other: Machine) -> bool:
        """Whether ``other`` is this one in an earlier life, so that its processes are gone."""
        return self.host == other.host and self.boot_id != other.boot_id


def this_machine() -> Machine:
    """The machine, or container, that this process is in."""
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return Machine(socket.gethostname(), boot_id, str((_PROC / "self/ns/pid").readlink()))


def carriers(marks: Collection[str]) -> dict[str, list[int]]:
    """Mark -> ids of the living processes that carry it.

    A process may start another and end while /proc is being read, so that neither is seen; hence a
    mark that nobody carries is looked for twice.
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
        while not is_whole:  # nothing is believed that was read at the wrong moment
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
    """Whether it has a new memory by now, into which its environment has yet to be written.

    This lasts for a moment of every exec, and in it the process does not show its mark. See
    proc_pid_stat(5): ``env_end`` is 0 then. So it is of kernel threads and of what has ended.

    Raises:
        OSError: it has ended.
    """
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    state, flags, env_end = fields[0], int(fields[6]), int(fields[48])
    return env_end == 0 and state not in (b"Z", b"X") and not flags & _KERNEL_THREAD
