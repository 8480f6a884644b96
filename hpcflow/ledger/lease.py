"""At most one process acts for a ledger: a lease that expires, with a fence number that only grows.

Login nodes behind one name are different hosts, so neither a pid file nor a file lock shows whether
a process is alive; one that has not renewed its lease in time counts as dead. If it is alive, its
next :func:`renew` or :func:`holds` reveals the new fence. Its actions meanwhile are harmless,
because every submission happens exactly once. Every function raises LedgerError if the database
fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import from_text, to_text
from hpcflow.ledger.codec import columns, selected
from hpcflow.ledger.store import Ledger

#: The counter wraps here. Another user may have written a larger one, which would overflow the
#: column.
_MAX_FENCE: Final = 2**53 - 1


@dataclass(frozen=True)
class Lease:
    """A current or former lease.

    Attributes:
        holder: a text unique to the process.
        fence: counts the holders; a write under an older fence is too late.
    """

    name: str
    holder: str
    host: str
    pid: int
    fence: int
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime

    def is_alive(self, now: datetime) -> bool:
        """Return whether it has not expired, and was not renewed by a clock that was ahead."""
        is_ahead = self.renewed_at - now > self.expires_at - self.renewed_at
        return now < self.expires_at and not is_ahead


def acquire(
    ledger: Ledger, name: str, *, holder: str, host: str, pid: int, ttl_s: float, now: datetime
) -> Lease | None:
    """Take the lease ``name`` if it is free or expired; None if another process holds it.

    A lease that was renewed more than ``ttl_s`` from now was renewed by a clock that is ahead; its
    process may be long dead.
    """
    moment, end = to_text(now), to_text(now + timedelta(seconds=ttl_s))
    far = to_text(now + timedelta(seconds=2 * ttl_s))
    key = "name" if ledger.url.kind == "sqlite" else "name, owner"
    sql = (
        "INSERT INTO lease (name, holder, host, pid, fence, acquired_at, renewed_at, expires_at) "  # noqa: S608 - our names
        "VALUES (?, ?, ?, ?, 1, ?, ?, ?) "
        f"ON CONFLICT ({key}) DO UPDATE SET holder = excluded.holder, host = excluded.host, "
        "pid = excluded.pid, fence = (lease.fence & ?) + 1, acquired_at = excluded.acquired_at, "
        "renewed_at = excluded.renewed_at, expires_at = excluded.expires_at "
        "WHERE lease.expires_at <= ? OR lease.expires_at > ? OR lease.holder = ?"
    )
    values = [name, holder, host, pid, moment, moment, end, _MAX_FENCE, moment, far, holder]
    is_taken = _write(ledger, sql, values)
    if not is_taken:
        return None
    lease = look(ledger, name)
    return lease if lease is not None and lease.holder == holder else None


def renew(ledger: Ledger, lease: Lease, *, ttl_s: float, now: datetime) -> bool:
    """Extend the lease by ``ttl_s``; return False if another process holds it now."""
    return _write(
        ledger,
        "UPDATE lease SET renewed_at = ?, expires_at = ? "
        "WHERE name = ? AND holder = ? AND fence = ?",
        [
            to_text(now),
            to_text(now + timedelta(seconds=ttl_s)),
            lease.name,
            lease.holder,
            lease.fence,
        ],
    )


def holds(ledger: Ledger, lease: Lease) -> bool:
    """Return whether the lease is still the one that was acquired."""
    found = look(ledger, lease.name)
    return found is not None and (found.holder, found.fence) == (lease.holder, lease.fence)


def release(ledger: Ledger, lease: Lease, *, now: datetime) -> None:
    """Release the lease, if it is still held; its fence is kept."""
    _write(
        ledger,
        "UPDATE lease SET expires_at = ? WHERE name = ? AND holder = ? AND fence = ?",
        [to_text(now), lease.name, lease.holder, lease.fence],
    )


def look(ledger: Ledger, name: str) -> Lease | None:
    """Return the last lease of this name; None if there never was one."""
    connection = ledger.connection()
    what = selected(connection.url.kind, Lease, columns(Lease))
    rows = connection.rows(f"SELECT {what} FROM lease WHERE name = ?", [name])  # noqa: S608 - our names
    if not rows:
        return None
    found_name, holder, host, pid, fence, *times = rows[0]
    try:
        acquired_at, renewed_at, expires_at = map(_moment, times)
    except ValueError as error:
        raise ledger.damaged(f"table lease: {str(error)[:80]}") from None
    return Lease(found_name, holder, host, pid, fence, acquired_at, renewed_at, expires_at)


def _write(ledger: Ledger, sql: str, values: Sequence[object]) -> bool:
    """Return whether a row was written."""
    connection = ledger.connection()
    with connection.transaction(write=True):
        return connection.execute(sql, values).rowcount == 1


def _moment(value: str | datetime) -> datetime:
    return from_text(value) if isinstance(value, str) else value
