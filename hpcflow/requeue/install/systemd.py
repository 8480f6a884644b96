"""A unit of the user's systemd: the loop, restarted whenever it ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from hpcflow.errors import HpcflowError, InputError
from hpcflow.programs import run_program
from hpcflow.requeue.install.place import Place
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import fsync_folder, make_folders, write_durably

_TIMEOUT_S: Final = 60.0
#: Where logind keeps the names of the lingering users.
_LINGERING: Final = Path("/var/lib/systemd/linger")


@dataclass(frozen=True)
class Systemd:
    place: Place
    variables: Mapping[str, str]
    environ: Mapping[str, str]
    user: str
    name: ClassVar[str] = "systemd"

    @property
    def unit(self) -> str:
        """Return the unit's name; it has the cluster, because clusters may share a home."""
        return f"hpcflow-daemon-{self.place.name}.service"

    @property
    def path(self) -> Path:
        """Return the unit's path, where systemd looks for the units of a user."""
        home = self.environ.get("HOME") or str(Path.home())
        config = self.environ.get("XDG_CONFIG_HOME", "")
        base = Path(config) if config.startswith("/") else Path(home) / ".config"
        return base / "systemd" / "user" / self.unit

    def plan(self) -> str:
        return f"{self.path}:\n\n{unit_text(self.place, self.variables)}"

    def require_allowed(self) -> None:
        if problem := self._call(["show-environment"]):
            raise InputError(problem, next_action="use cron: hpcflow daemon install --cron")
        if not (_LINGERING / self.user).exists():
            raise InputError(
                "systemd would stop the daemon at your last logout",
                next_action="if the site allows it: loginctl enable-linger; "
                "else: hpcflow daemon install --cron",
            )

    def install(self) -> str:
        text = unit_text(self.place, self.variables)
        with storage_errors("write", self.path):
            make_folders(self.path.parent)
        write_durably(self.path, text)
        after = (
            "it stops at your last logout unless the site lets it linger: loginctl enable-linger\n"
            f"its log: journalctl --user --unit={self.unit}"
        )
        steps = [["daemon-reload"], ["enable", self.unit], ["restart", self.unit]]
        problem = next(filter(None, map(self._call, steps)), None)
        if problem is None:
            return after
        typed = " && ".join(f"systemctl --user {' '.join(step)}" for step in steps)
        return (
            f"the unit is written but does not run: {problem}\n"
            f"type on the machine where it should run: {typed}\n{after}"
        )

    def uninstall(self) -> str | None:
        if not self.path.exists():
            return None
        problem = self._call(["disable", "--now", self.unit])
        with storage_errors("delete", self.path):
            self.path.unlink(missing_ok=True)
            # The link of `enable`, if systemctl could not remove it.
            (self.path.parent / "default.target.wants" / self.unit).unlink(missing_ok=True)
            fsync_folder(self.path.parent)
        if problem is None:
            self._call(["daemon-reload"])
        return (
            f"the unit {self.path}; if it runs on other machines that share this home, type "
            f"there: systemctl --user stop {self.unit}"
        )

    def look(self) -> str | None:
        return f"the unit {self.path}" if self.path.exists() else None

    def _call(self, words: list[str]) -> str | None:
        """Call systemctl; return what went wrong, or None."""
        program = shutil.which("systemctl", path=self.environ.get("PATH"))
        if program is None:
            return "no systemctl on this machine"
        try:
            done = run_program(
                [program, "--user", *words],
                environment={**os.environ, "LC_ALL": "C"},
                timeout_s=_TIMEOUT_S,
            )
        except OSError as error:
            return str(error)
        return "; ".join(done.problem.splitlines()) if done.problem else None


def unit_text(place: Place, variables: Mapping[str, str]) -> str:
    command = " ".join(quote_word(word, expands=True) for word in (*place.command, "daemon"))
    lines = [
        "# Written by: hpcflow daemon install --systemd",
        "# remove: hpcflow daemon uninstall --systemd",
        "[Unit]",
        f"Description=hpcflow requeue daemon for {place.cluster.replace('%', '%%')}",
        # No limit of restarts: Slurm may be down for a night.
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        *(f"Environment={quote_word(f'{name}={value}')}" for name, value in variables.items()),
        f"ExecStart={command}",
        "Restart=always",
        "RestartSec=30",
        # At SIGTERM it exits after the current action; sbatch may take three minutes.
        "TimeoutStopSec=200",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return "\n".join(lines)


def quote_word(text: str, *, expands: bool = False) -> str:
    """Return ``text`` as one word of a unit, by the rules of systemd.syntax(7).

    Args:
        expands: whether ``$`` is special: in a command line, not in ``Environment=``.

    Raises:
        HpcflowError: it has a newline; :func:`require_one_line` refuses it earlier.
    """
    if "\n" in text or "\0" in text:
        raise HpcflowError(f"{text!r} cannot be written in a unit")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if expands:
        escaped = escaped.replace("$", "$$")
    return f'"{escaped}"'
