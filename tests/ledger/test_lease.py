"""At most one process acts for a ledger, on SQLite and on Postgres."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from hpcflow.errors import LedgerError
from hpcflow.ledger.lease import Lease, acquire, holds, look, release, renew
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.testing.cluster import Postgres

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
TTL_S = 60.0


def take(ledger: Ledger, holder: str, now: datetime = NOW) -> Lease | None:
    return acquire(ledger, "daemon", holder=holder, host="login1", pid=7, ttl_s=TTL_S, now=now)


def test_one_holder_at_a_time(ledger: Ledger) -> None:
    assert look(ledger, "daemon") is None
    first = take(ledger, "a")
    assert first is not None
    assert (first.fence, first.host, first.pid, first.acquired_at) == (1, "login1", 7, NOW)
    assert take(ledger, "b") is None
    assert holds(ledger, first)
    assert look(ledger, "daemon") == first


def test_whoever_does_not_renew_is_taken_for_dead_and_learns_it(ledger: Ledger) -> None:
    first = take(ledger, "a")
    assert first is not None
    later = NOW + timedelta(seconds=TTL_S - 1)
    assert renew(ledger, first, ttl_s=TTL_S, now=later)
    assert take(ledger, "b", NOW + timedelta(seconds=TTL_S + 1)) is None, "it was renewed"
    second = take(ledger, "b", later + timedelta(seconds=TTL_S))
    assert second is not None
    assert second.fence == 2
    assert not holds(ledger, first)
    assert not renew(ledger, first, ttl_s=TTL_S, now=later)
    release(ledger, first, now=later)
    assert holds(ledger, second), "what the first one gives back is not the second one's"


def test_a_lease_that_was_given_back_is_free_at_once(ledger: Ledger) -> None:
    first = take(ledger, "a")
    assert first is not None
    release(ledger, first, now=NOW)
    second = take(ledger, "b")
    assert second is not None
    assert second.fence == 2


@pytest.mark.parametrize("fence", [2**63 - 1, -(2**63), -1, 2**53])
def test_a_count_of_another_user_keeps_nobody_from_the_lease(ledger: Ledger, fence: int) -> None:
    first = take(ledger, "a")
    assert first is not None
    ledger.connection().execute("UPDATE lease SET fence = ?", [fence])
    release(ledger, first, now=NOW)
    later = NOW + timedelta(seconds=TTL_S)
    second = take(ledger, "b", later)
    assert second is not None
    assert 0 < second.fence <= 2**53
    assert holds(ledger, second)


@pytest.mark.parametrize("renewed", [1, 9999])
@pytest.mark.parametrize("expires", [1, 9999])
def test_times_of_another_user_can_be_compared(renewed: int, expires: int) -> None:
    renewed_at, expires_at = (NOW.replace(year=year) for year in (renewed, expires))
    lease = Lease("daemon", "a", "login1", 7, 1, NOW, renewed_at, expires_at)
    assert lease.is_alive(NOW) == ((renewed, expires) == (1, 9999))


def test_the_same_process_may_ask_again(ledger: Ledger) -> None:
    first, again = take(ledger, "a"), take(ledger, "a")
    assert first is not None
    assert again is not None
    assert (again.fence, holds(ledger, first)) == (2, False)


@pytest.mark.postgres
def test_a_crash_of_the_server_takes_no_lease(own_postgres: Postgres) -> None:
    """A fence that went back would let two act at once."""
    with open_ledger(own_postgres.create_database("ledger_crashed")) as ledger:
        leases = [take(ledger, holder) for holder in "aaaaa"]
        own_postgres.daemon.kill()
        own_postgres.start()
        with pytest.raises(LedgerError, match="is the server up"):
            ledger.runs()
        assert leases[-1] is not None
        assert holds(ledger, leases[-1])
        assert leases[-1].fence == 5


def test_of_many_that_ask_at_once_one_gets_it(ledger_url: str) -> None:
    def ask(number: int) -> Lease | None:
        with open_ledger(ledger_url) as own:
            return take(own, f"holder-{number}")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(16)))
    assert len([each for each in found if each is not None]) == 1


def test_a_clock_that_is_wrong_makes_a_second_holder_but_never_two_fences(ledger: Ledger) -> None:
    first = take(ledger, "a")
    assert first is not None
    ahead = take(ledger, "b", NOW + timedelta(hours=1))
    assert ahead is not None
    assert not holds(ledger, first)
    assert not ahead.is_alive(NOW), "whoever it was may be long dead"
    again = take(ledger, "a", NOW)
    assert again is not None
    assert again.fence == 3
    assert not holds(ledger, ahead)


def test_clocks_that_differ_a_little_take_nothing_from_each_other(ledger: Ledger) -> None:
    first = take(ledger, "a", NOW + timedelta(seconds=TTL_S / 2))
    assert first is not None
    assert first.is_alive(NOW)
    assert take(ledger, "b", NOW) is None
