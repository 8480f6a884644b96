"""munged with its own key and socket, for the authentication within one cluster."""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
from pathlib import Path

from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.files import make_directory

_USER = "munge"


def munge(folder: Path) -> Daemon:
    """Return the munge daemon of this folder; Debian's own munged is not touched."""
    home = folder / "munge"
    socket = home / "munge.sock"
    argv = [
        "/usr/sbin/munged",
        "--foreground",
        f"--socket={socket}",
        f"--key-file={home}/private/munge.key",
        f"--seed-file={home}/private/munge.seed",
        f"--pid-file={home}/munged.pid",
        f"--log-file={home}/private/munged.log",
        "--num-threads=4",
        # A killed munged leaves its lock; daemon.py's record decides whether it runs.
        "--force",
    ]
    return Daemon(folder, "munge", argv, ready=lambda: _answers(socket), user=_owner())


def prepare(folder: Path) -> None:
    """Create the key once, and folders that only munged can write, as it requires."""
    owner = _owner()
    make_directory(folder / "munge", 0o755, owner)
    make_directory(folder / "munge/private", 0o700, owner)
    key = folder / "munge/private/munge.key"
    if not key.exists() or key.stat().st_size == 0:
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    os.chown(key, *owner)


def _owner() -> tuple[int, int]:
    entry = pwd.getpwnam(_USER)
    return entry.pw_uid, entry.pw_gid


def _answers(socket: Path) -> bool:
    if not socket.exists():
        return False
    argv = ["/usr/bin/munge", f"--socket={socket}", "--no-input"]
    try:
        return subprocess.run(argv, capture_output=True, timeout=3).returncode == 0
    except subprocess.TimeoutExpired:
        return False
