"""At most one daemon acts for a home, whichever ledger each has.

The lease is a small file in the home, with the fields and rules of the ledger's lease
(:mod:`hpcflow.ledger.lease`): it expires by itself, and a process that slept past its expiry learns
that before its next action. docs/architecture.md says why a lock alone would not suffice. Where the
file system has no locks, if two processes take the lease at the same moment, the last one has it,
and the other finds that out before its next action. Every function raises StorageError if the file
cannot be used or its lock is held for long.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from hpcflow.clock import Clock, from_text, to_text
from hpcflow.ledger.lease import Lease
from hpcflow.requeue.install.place import cluster_word
from hpcflow.runtime.reading import open_file, parse_json
from hpcflow.settings import Settings
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import make_folders
from hpcflow.storage.locks import wait_for_lock

#: All records have this length, so that one write replaces the record before, even on a full disk.
_BYTES: Final = 1024
_LOCK_WAIT_S: Final = 10.0
_MAX_FENCE: Final = 2**53 - 1
_TIMES: Final = ("acquired_at", "renewed_at", "expires_at")


def path_of(settings: Settings) -> Path:
    """Return the path of the daemon's lease for this home and cluster."""
    return settings.home.daemon / f"{cluster_word(settings)}.lease"


def look(settings: Settings) -> Lease | None:
    """Return the current or last lease; None if there never was one."""
    path = path_of(settings)
    with storage_errors("read", path), suppress(FileNotFoundError), open_file(path) as file:
        return _parsed(file.read(_BYTES))
    return None


@dataclass
class HomeLease:
    """The lease of a home, as one process sees it.

    Attributes:
        holder: unique text of this process.
        is_held: whether this process took it and did not give it back.
    """

    settings: Settings
    clock: Clock
    holder: str
    host: str
    pid: int
    ttl_s: float
    is_held: bool = False

    def take(self) -> bool:
        """Take or renew the lease for ``ttl_s``; return False if another process has it."""
        path = path_of(self.settings)
        with storage_errors("write", path):
            make_folders(path.parent)
        with wait_for_lock(path, wait_s=_LOCK_WAIT_S, clock=self.clock) as lock:
            now, found = self.clock.now(), _read(lock.fd, path)
            is_ours = found is not None and found.holder == self.holder
            if found is not None and not is_ours and found.is_alive(now):
                self.is_held = False
                return False
            end = now + timedelta(seconds=self.ttl_s)
            if is_ours and found is not None and self.is_held:
                lease = replace(found, renewed_at=now, expires_at=end)
            else:
                fence = (found.fence if found is not None else 0) % _MAX_FENCE + 1
                name = path.stem
                lease = Lease(name, self.holder, self.host, self.pid, fence, now, now, end)
            _write(lock.fd, path, lease)
        self.is_held = True
        return True

    def holds(self) -> bool:
        if not self.is_held:
            return False
        path = path_of(self.settings)
        # The lock makes an NFS client read what other hosts have written.
        with wait_for_lock(path, wait_s=_LOCK_WAIT_S, clock=self.clock) as lock:
            found = _read(lock.fd, path)
        return found is not None and found.holder == self.holder

    def give_back(self) -> None:
        """End the lease now, if this process has it."""
        if not self.is_held:
            return
        self.is_held = False
        path = path_of(self.settings)
        with wait_for_lock(path, wait_s=_LOCK_WAIT_S, clock=self.clock) as lock:
            found = _read(lock.fd, path)
            if found is not None and found.holder == self.holder:
                _write(lock.fd, path, replace(found, expires_at=self.clock.now()))


def _read(fd: int, path: Path) -> Lease | None:
    with storage_errors("read", path):
        return _parsed(os.pread(fd, _BYTES, 0))


def _write(fd: int, path: Path, lease: Lease) -> None:
    values = {**asdict(lease), **{name: to_text(getattr(lease, name)) for name in _TIMES}}
    with storage_errors("write", path):
        os.pwrite(fd, json.dumps(values).encode().ljust(_BYTES - 1) + b"\n", 0)


def _parsed(data: bytes) -> Lease | None:
    """Return the lease; None for an empty or damaged file: a host may die while it writes."""
    try:
        values = parse_json(data)
        times: dict[str, datetime] = {name: from_text(values[name]) for name in _TIMES}
        return Lease(
            name=str(values["name"]),
            holder=str(values["holder"]),
            host=str(values["host"]),
            pid=int(values["pid"]),
            fence=int(values["fence"]),
            **times,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
