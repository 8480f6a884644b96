"""MariaDB for slurmdbd: own data folder, loopback only, one database, one user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.files import make_directory, write_atomic
from hpcflow.testing.cluster.packages import find_program
from hpcflow.testing.cluster.ports import answers
from hpcflow.testing.cluster.settings import Settings

_USER = "mysql"


def mariadb(folder: Path, settings: Settings) -> Daemon:
    argv = [find_program("mariadbd") or "mariadbd", f"--defaults-file={folder}/mariadb/my.cnf"]
    port = settings.ports.mariadb
    return Daemon(folder, "mariadb", argv, ready=lambda: answers(port), user=_owner())


def prepare(folder: Path, settings: Settings) -> None:
    """Write the configuration, and create the data folder once; an incomplete one is recreated."""
    home = make_directory(folder / "mariadb", 0o700, _owner())
    for name, text in (("my.cnf", _my_cnf(home, settings)), ("init.sql", _init_sql(settings))):
        write_atomic(home / name, text, 0o600)
        os.chown(home / name, *_owner())
    # Not shared: a starting server removes the temporary files of others.
    scratch = make_directory(home / "tmp", 0o700, _owner())
    if (home / "data").exists():
        return
    half = home / "data.new"
    shutil.rmtree(half, ignore_errors=True)
    _install(half, scratch)
    half.rename(home / "data")


def _install(data: Path, scratch: Path) -> None:
    argv = [
        find_program("mariadb-install-db") or "mariadb-install-db",
        "--no-defaults",
        f"--user={_USER}",
        f"--datadir={data}",
        f"--tmpdir={scratch}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
    ]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise HpcflowError(
            f"mariadb-install-db failed with {done.returncode}:\n{done.stdout[-800:]}{done.stderr}",
            next_action="see whether the disk is full: df -h",
        )


def _my_cnf(home: Path, settings: Settings) -> str:
    return f"""[mariadbd]
datadir={home}/data
tmpdir={home}/tmp
socket={home}/mariadb.sock
pid-file={home}/mariadb.pid
init-file={home}/init.sql
bind-address=127.0.0.1
port={settings.ports.mariadb}
skip-name-resolve
# What slurmdbd asks for, but smaller; only a crash of the machine loses a second of accounting.
innodb_buffer_pool_size=128M
innodb_log_file_size=48M
innodb_lock_wait_timeout=900
innodb_flush_log_at_trx_commit=2
max_allowed_packet=16M
"""


def _init_sql(settings: Settings) -> str:
    """Return the SQL that runs at every start, before connections. The password is plain hex."""
    password = settings.database_password
    return f"""CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY '{password}';
ALTER USER slurm@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';
DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> 'localhost';
"""


def _owner() -> tuple[int, int]:
    entry = pwd.getpwnam(_USER)
    return entry.pw_uid, entry.pw_gid
