"""A Postgres server with its own data folder and a random password, on the loopback.

It needs no Slurm. Started by root, it runs as the Unix user ``postgres``, because it refuses root;
else as the caller.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster import leftovers
from hpcflow.testing.cluster.daemon import CLEAN_ENVIRONMENT, Daemon
from hpcflow.testing.cluster.files import (
    locked,
    make_directory,
    read_json,
    write_atomic,
    write_json,
)
from hpcflow.testing.cluster.packages import require_postgres
from hpcflow.testing.cluster.ports import free_block, is_free
from hpcflow.testing.cluster.progress import Progress

_ROLE = "hpcflow"


class Postgres:
    """The server of one folder; :meth:`start` starts it."""

    def __init__(self, folder: str | Path, *, progress: Progress | None = None) -> None:
        self.folder = Path(folder).resolve()
        self.home = self.folder / "postgres"
        self._progress = progress or Progress()
        self._saved = self.home / "server.json"

    def __repr__(self) -> str:
        return f"<postgres in {self.home}>"

    @property
    def daemon(self) -> Daemon:
        """The process, for tests that kill it."""
        argv = [str(require_postgres() / "postgres"), "-D", str(self.home / "data")]
        return Daemon(
            self.folder,
            "postgres",
            argv,
            ready=self._answers,
            user=_owner(),
            stop_signal=signal.SIGINT,  # "fast" shutdown: does not wait for clients
        )

    def start(self) -> Postgres:
        """Create the data folder if need be, start the server unless it runs, and wait for it."""
        if self.daemon.is_ready():
            return self
        with locked(self.folder / "postgres.lock"), self._progress.step("Postgres"):
            if not self.daemon.is_running():
                self._prepare()
            self.daemon.start().wait_ready()
        return self

    def stop(self) -> None:
        """Stop the server; the data remain."""
        self.daemon.stop()

    def url(self, database: str = "postgres") -> str:
        saved = self._settings()
        login = f"{_ROLE}:{saved['password']}"
        return f"postgresql+psycopg://{login}@127.0.0.1:{saved['port']}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database, replacing one of that name; return its URL."""
        self.drop_database(name)
        self._client("createdb", name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Delete a database if it exists, and disconnect its clients."""
        self._client("dropdb", "--force", "--if-exists", name)

    def _settings(self) -> dict[str, str]:
        saved = read_json(self._saved)
        if not saved:
            raise HpcflowError(
                f"no Postgres was started in {self.folder}", next_action="call start() first"
            )
        return {key: str(value) for key, value in saved.items()}

    def _answers(self) -> bool:
        try:
            return self._client("psql", "-c", "select 1", "postgres", check=False).returncode == 0
        except (HpcflowError, subprocess.TimeoutExpired):
            return False

    def _client(
        self, program: str, *argv: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        saved = self._settings()
        login = {"PGHOST": "127.0.0.1", "PGPORT": saved["port"], "PGUSER": _ROLE,
                 "PGPASSWORD": saved["password"], "PGCONNECT_TIMEOUT": "5"}  # fmt: skip
        done = subprocess.run(
            [str(require_postgres() / program), *argv],
            capture_output=True,
            text=True,
            timeout=30,
            env={**CLEAN_ENVIRONMENT, **login},
        )
        if check and done.returncode != 0:
            raise HpcflowError(
                f"{program} {' '.join(argv)} failed: {done.stderr.strip()}",
                next_action=f"see {self.daemon.log}",
            )
        return done

    def _prepare(self) -> None:
        """Create the data folder once, and choose another port if it was taken.

        The server does not run, so its locks are stale. Postgres would take a zombie, or another
        process with the pid in them, for a running server.
        """
        leftovers.kill_postgres(self.folder)
        for lock in (self.home / "data/postmaster.pid", *self.home.glob(".s.PGSQL.*")):
            lock.unlink(missing_ok=True)
        make_directory(self.home, 0o700, _owner())
        saved = read_json(self._saved) or {"port": 0, "password": secrets.token_hex(16)}
        if not saved["port"] or not is_free(int(saved["port"])):
            saved["port"] = free_block(1)
        write_json(self._saved, saved)
        if not (self.home / "data").exists():
            self._initialize(str(saved["password"]))
        configuration = self.home / "data/postgresql.auto.conf"
        write_atomic(configuration, _configuration(int(saved["port"]), self.home), 0o600)
        _give(configuration)

    def _initialize(self, password: str) -> None:
        half, secret = self.home / "data.new", self.home / "password"
        shutil.rmtree(half, ignore_errors=True)
        write_atomic(secret, password + "\n", 0o600)
        _give(secret)
        argv = [str(require_postgres() / "initdb"), "-D", str(half), "-U", _ROLE, "-E", "UTF8",
                "--locale=C.UTF-8", "--auth=scram-sha-256", f"--pwfile={secret}",
                "--no-sync"]  # fmt: skip
        uid, gid = _owner() or (None, None)
        done = subprocess.run(
            argv, capture_output=True, text=True, cwd="/", env=CLEAN_ENVIRONMENT,
            user=uid, group=gid, extra_groups=[] if uid is not None else None,
        )  # fmt: skip
        secret.unlink()
        if done.returncode != 0:
            raise HpcflowError(
                f"initdb failed with {done.returncode}: {done.stderr.strip()}",
                next_action="see whether the disk is full: df -h",
            )
        half.rename(self.home / "data")


def _configuration(port: int, home: Path) -> str:
    # fsync off: only a power failure loses data, not a killed server.
    return f"""listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{home if len(str(home)) < 80 else ""}'
max_connections = 200
fsync = off
"""


def _owner() -> tuple[int, int] | None:
    """Return the Unix user for the server; None for the caller, unless that is root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("postgres")
    return entry.pw_uid, entry.pw_gid


def _give(path: Path) -> None:
    owner = _owner()
    if owner is not None:
        os.chown(path, *owner)
