"""Ordinary Unix users of the cluster, and commands in their login environment."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster.files import make_directory
from hpcflow.testing.cluster.machine import ensure_user
from hpcflow.testing.cluster.slurm import path_of

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


class CommandFailed(HpcflowError):
    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        super().__init__(
            f"{process.args} failed with {process.returncode}\n"
            f"stdout: {process.stdout}\nstderr: {process.stderr}"
        )
        self.process = process


class User:
    """An ordinary user: ``user.run(["sbatch", "job.sh"])``."""

    def __init__(self, folder: Path, name: str, account: str) -> None:
        self.name = name
        self.account = account
        self.home = folder / "home" / name
        self.scratch = folder / "scratch" / name
        self._folder = folder

    def __repr__(self) -> str:
        return f"<user {self.name} of account {self.account}>"

    @property
    def entry(self) -> pwd.struct_passwd:
        return pwd.getpwnam(self.name)

    def ensure(self) -> None:
        """Create the Unix user, its home and its private scratch, if missing."""
        entry = ensure_user(self.name, self.home)
        owner = (entry.pw_uid, entry.pw_gid)
        for path in (self.home, self.scratch):
            make_directory(path.parent)
            stale = path.exists() and path.stat().st_uid != entry.pw_uid
            make_directory(path, 0o700, owner)
            if stale:
                # The user was deleted and created again, with another uid.
                subprocess.run(["chown", "-R", f"{owner[0]}:{owner[1]}", str(path)], check=True)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of a login shell, and ``extra``; none of the caller's."""
        return {
            "HOME": str(self.home),
            "USER": self.name,
            "LOGNAME": self.name,
            "SHELL": "/bin/bash",
            "PATH": f"{self._folder}/software/venv/bin:{path_of(self._folder, _SYSTEM_PATH)}",
            "LANG": "C.UTF-8",
            "SLURM_CONF": f"{self._folder}/etc/slurm.conf",
            "SCRATCH": str(self.scratch),
            **(extra or {}),
        }

    def program(self, name: str) -> str | None:
        """Return the path of a program on this user's PATH; None if there is none."""
        return shutil.which(name, path=self.environment()["PATH"])

    def popen(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start a command in its own session, with text streams that are pipes by default."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **options}
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(
            [os.fspath(word) for word in argv],
            cwd=cwd or self.scratch,
            env=self.environment(env),
            user=self.entry.pw_uid,
            group=self.entry.pw_gid,
            extra_groups=[],
            umask=0o022,
            start_new_session=True,
            text=True,
            **options,
        )

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout: float | None = 120,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; ``cwd`` is the scratch by default.

        Raises CommandFailed unless it exits with 0 or ``check`` is False. After ``timeout`` seconds
        it is killed with all that it started, and subprocess.TimeoutExpired is raised.
        """
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        with self.popen(argv, cwd=cwd, env=env, stdin=stdin) as process:
            try:
                stdout, stderr = process.communicate(input, timeout)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        done = subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)
        if check and done.returncode != 0:
            raise CommandFailed(done)
        return done
