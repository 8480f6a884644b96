"""A user's crontab, or Slurm's, through the program that keeps it: ``-l``, ``-``, ``-r``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Final

from hpcflow.errors import HpcflowError, InputError

#: ``no crontab for ada``: all of them say so, on stdout or stderr, with exit code 1.
_EMPTY: Final = re.compile(r"\bno crontab for\b")
#: ``You (ada) are not allowed to use this program (crontab)``; ``scrontab is disabled on …``.
_FORBIDDEN: Final = re.compile(
    r"not allowed to use|not authorized|is disabled on|permission denied", re.I
)
#: slurmctld answers scrontab; the local one answers at once.
TIMEOUT_S: Final = 20.0


@dataclass(frozen=True)
class TableProgram:
    """``crontab`` or ``scrontab``.

    Attributes:
        otherwise: what to type where it cannot be used.
    """

    name: str
    otherwise: str

    @property
    def is_here(self) -> bool:
        """Whether the program is on PATH."""
        return shutil.which(self.name) is not None

    def read(self, *, timeout_s: float = TIMEOUT_S) -> str:
        """All of the table; empty when there is none. Bytes that are no text survive.

        Raises:
            HpcflowError: it cannot be read.
        """
        done = self._call("-l", timeout_s=timeout_s)
        if done.returncode != 0:
            if _EMPTY.search(done.stderr + done.stdout):
                return ""
            raise self._refused("read", done)
        return done.stdout

    def write(self, text: str) -> None:
        """Put ``text`` in place of the table; an empty one takes the table away.

        Raises:
            HpcflowError: it was not taken; the old one is as it was.
        """
        if not text:
            done = self._call("-r")
        else:
            # Without it cron does not take the last line, nor some programs the file.
            done = self._call("-", text=text if text.endswith("\n") else f"{text}\n")
        if done.returncode != 0:
            raise self._refused("write", done)

    def _call(
        self, option: str, *, text: str = "", timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        path = shutil.which(self.name)
        if path is None:
            raise InputError(f"no {self.name} on this machine", next_action=self.otherwise)
        try:
            done = subprocess.run(
                [path, option],
                input=text.encode("utf-8", "surrogateescape"),
                capture_output=True,
                env={**os.environ, "LC_ALL": "C"},
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HpcflowError(
                f"{self.name} {option} gave no answer: {error}", next_action="try again later"
            ) from None
        out, err = (each.decode("utf-8", "surrogateescape") for each in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def _refused(self, doing: str, done: subprocess.CompletedProcess[str]) -> HpcflowError:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        said = "; ".join(line.strip() for line in said.splitlines() if line.strip())
        message = f"cannot {doing} your table with {self.name}: {said[:500]}"
        if _FORBIDDEN.search(said):
            return InputError(message, next_action=self.otherwise)
        return HpcflowError(message, next_action=f"see what it says: {self.name} -l")
