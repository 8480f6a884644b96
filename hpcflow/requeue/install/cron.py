"""An entry in the user's crontab: one round every minute."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from hpcflow.errors import InputError
from hpcflow.requeue.install.place import Place
from hpcflow.requeue.install.table import TableProgram, find_block, make_block, with_block

CRONTAB: Final = TableProgram(
    "crontab",
    "use another way, or another login node: hpcflow daemon install --help; ask the site which",
)
#: A round without work costs less than a second; a waiting run costs more.
SCHEDULE: Final = "* * * * *"
#: The limit of Debian's (Vixie) cron, after the five fields; other crons accept more.
LONGEST_COMMAND: Final = 998
_LOOK_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class Cron:
    place: Place
    variables: Mapping[str, str]
    user: str
    program: TableProgram = CRONTAB
    name: ClassVar[str] = "cron"

    def plan(self) -> str:
        block = make_block(self.place.block, self._lines())
        return f"in the crontab of {self.user} on {socket.gethostname()}:\n\n{block}"

    def require_allowed(self) -> None:
        self.program.read(timeout_s=_LOOK_TIMEOUT_S)

    def install(self) -> str:
        lines = self._lines()
        self.place.make_folder()
        self.program.change(lambda old: with_block(old, self.place.block, lines))
        return f"the crontab is of {socket.gethostname()} only; its log: {self.place.log}"

    def uninstall(self) -> str | None:
        if not self.program.is_here or not self.program.remove(self.place.block):
            return None
        return f"the line in the crontab of {socket.gethostname()}"

    def look(self) -> str | None:
        if not self.program.is_here:
            return None
        block = find_block(self.program.read(timeout_s=_LOOK_TIMEOUT_S), self.place.block)
        return f"a line in the crontab of {socket.gethostname()}" if block else None

    def _lines(self) -> list[str]:
        return cron_lines(self.place, self.variables)


def cron_lines(place: Place, variables: Mapping[str, str]) -> list[str]:
    """Return the lines between the marks.

    Raises:
        InputError: the command is longer than cron accepts.
    """
    command = escape_percent(
        f"{round_command(place, variables)} >> {shlex.quote(str(place.log))} 2>&1"
    )
    if len(command.encode()) > LONGEST_COMMAND:
        longest = max(variables, key=lambda name: len(variables[name]))
        raise InputError(
            f"the line would have {len(command.encode())} bytes, but cron accepts "
            f"{LONGEST_COMMAND}; the longest part is {longest}={variables[longest][:60]}…",
            next_action="shorten that part, or use another way: hpcflow daemon install --systemd",
        )
    return [f"# {place.rounds.remark.format(way=Cron.name)}", f"{SCHEDULE} {command}"]


def round_command(place: Place, variables: Mapping[str, str]) -> str:
    """Return the sh command of one round, with its whole environment."""
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*words, *map(shlex.quote, place.command), *place.rounds.words])


def escape_percent(command: str) -> str:
    """Escape ``%``, which cron reads as a newline even between quotes."""
    return command.replace("%", "\\%")
