"""Other processes that are, or were, the daemon of a home."""

from __future__ import annotations

from hpcflow.clock import Clock, SystemClock
from hpcflow.requeue.daemon.home_lease import HomeLease
from hpcflow.requeue.daemon.loop import TTL_S
from hpcflow.settings import Settings, load_settings


def daemon(
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    pid: int = 7,
    host: str = "login1",
    holder: str = "other",
) -> HomeLease:
    """A daemon that has the lease of the home; None is the caller's."""
    clock = clock or SystemClock()
    lease = HomeLease(settings or load_settings(), clock, holder, host, pid, TTL_S)
    assert lease.take()
    return lease
