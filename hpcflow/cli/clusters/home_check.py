"""Check what the folder of a user's records needs of its file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hpcflow.errors import StorageError
from hpcflow.filesystem import existing_parent, mount_of
from hpcflow.sites.check import Finding, Level
from hpcflow.storage.locks import has_locks

_KEY: Final = "HPCFLOW_HOME"
_KERBEROS: Final = "sec=krb5"
#: Mount options of NFS and Lustre with which a lock counts on one host alone.
_OF_ONE_HOST: Final = frozenset({"nolock", "local_lock=flock", "local_lock=all", "localflock"})


def check_home(home: Path) -> list[Finding]:
    """Return findings about the file system of ``home``; nothing is left there."""
    return [*_locks(home), *_tickets(home)]


def _locks(home: Path) -> Iterator[Finding]:
    folder = home if home.is_dir() else existing_parent(home)
    mount = mount_of(folder)
    kind = mount.kind or "unknown file system"
    try:
        works = has_locks(folder)
    except StorageError as error:
        yield Finding(Level.ERROR, _KEY, error.message)
        return
    if local := sorted(_OF_ONE_HOST & mount.options):
        yield Finding(
            Level.WARNING,
            _KEY,
            f"{home} ({kind}) is mounted with {', '.join(local)}: another login node does not see "
            "its locks; type hpcflow on one login node only, or set HPCFLOW_HOME to another file "
            "system",
        )
    elif works:
        yield Finding(Level.OK, _KEY, f"{home} ({kind}) has locks")
    else:
        yield Finding(
            Level.WARNING,
            _KEY,
            f"{home} ({kind}) has no locks: two processes may submit the same run at once, and "
            "only one of its jobs trains; ask for the mount option flock, or set HPCFLOW_HOME to "
            "another file system",
        )


def _tickets(home: Path) -> Iterator[Finding]:
    mount = mount_of(home)
    if any(option.startswith(_KERBEROS) for option in mount.options):
        yield Finding(
            Level.WARNING,
            _KEY,
            f"{home} needs a Kerberos ticket: a daemon in cron cannot read it once yours has "
            "expired; run it where tickets are renewed",
        )
