"""At most one daemon acts for a home, whatever its ledger, its clock and its file server do."""

from __future__ import annotations

import errno
import fcntl
import json
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.requeue.daemon.home_lease import HomeLease, look, path_of
from hpcflow.requeue.daemon.loop import TTL_S
from hpcflow.settings import Settings, load_settings
from hpcflow.storage.locks import wait_for_lock
from hpcflow.testing.clock import FakeClock
from tests.requeue.training import MINUTE

DAY = 24 * 60 * MINUTE


@pytest.fixture
def settings(home: Path) -> Settings:
    assert not home.exists()
    return load_settings()


def process(settings: Settings, holder: str, clock: FakeClock | None = None) -> HomeLease:
    return HomeLease(settings, clock or FakeClock(), holder, "login1", 7, TTL_S)


def test_one_holder_at_a_time(settings: Settings) -> None:
    assert look(settings) is None
    first, second = process(settings, "a"), process(settings, "b")
    assert first.take()
    assert not second.take()
    assert (first.holds(), second.holds()) == (True, False)
    lease = look(settings)
    assert lease is not None
    assert (lease.fence, lease.host, lease.pid) == (1, "login1", 7)


def test_a_lease_that_was_given_back_is_free_at_once(settings: Settings) -> None:
    first, second = process(settings, "a"), process(settings, "b")
    assert first.take()
    first.give_back()
    assert second.take()
    first.give_back()
    assert second.holds(), "what the first one gives back is not the second one's"
    lease = look(settings)
    assert lease is not None
    assert lease.fence == 2


def test_whoever_does_not_renew_is_taken_for_dead_and_learns_it(settings: Settings) -> None:
    clock = FakeClock()
    first, second = process(settings, "a", clock), process(settings, "b", clock)
    assert first.take()
    clock.advance(TTL_S - 1)
    assert first.take()
    clock.advance(TTL_S - 1)
    assert not second.take(), "it was renewed"
    clock.advance(1)
    assert first.holds(), "late, but nobody has taken over"
    assert second.take()
    assert not first.holds()
    assert not first.take()


def test_a_process_that_was_killed_and_comes_again_waits_for_its_end(settings: Settings) -> None:
    clock = FakeClock()
    assert process(settings, "a", clock).take()
    again = process(settings, "a again", clock)
    assert not again.take()
    clock.advance(TTL_S)
    assert again.take()


@pytest.mark.parametrize("ahead_s", [DAY, 3 * TTL_S])
def test_a_clock_that_was_ahead_keeps_nobody_from_the_lease(
    settings: Settings, ahead_s: float
) -> None:
    clock, wrong = FakeClock(), FakeClock()
    wrong.advance(ahead_s)
    assert process(settings, "a", wrong).take()
    assert process(settings, "b", clock).take()


def test_a_clock_that_is_a_little_off_takes_nothing_away(settings: Settings) -> None:
    clock, off = FakeClock(), FakeClock()
    off.advance(TTL_S / 2)
    assert process(settings, "a", off).take()
    assert not process(settings, "b", clock).take()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 1024, b"[]", b'{"holder": "a"}', b'{"fence": 1e400}']
)
def test_a_damaged_lease_is_none(settings: Settings, content: bytes) -> None:
    """A host died while it wrote, or a disk was full."""
    first = process(settings, "a")
    assert first.take()
    path_of(settings).write_bytes(content)
    assert look(settings) is None
    assert not first.holds(), "it takes it again before it acts"
    assert process(settings, "b").take()


def test_a_deleted_lease_is_none(settings: Settings) -> None:
    first = process(settings, "a")
    assert first.take()
    path_of(settings).unlink()
    assert not first.holds()
    assert first.take()


def test_a_count_that_somebody_wrote_keeps_nobody_from_the_lease(settings: Settings) -> None:
    first = process(settings, "a")
    assert first.take()
    record = json.loads(path_of(settings).read_text())
    for fence in (2**70, -(2**70)):
        path_of(settings).write_text(json.dumps({**record, "fence": fence}))
        first.give_back()
        second = process(settings, "b")
        assert second.take()
        lease = look(settings)
        assert lease is not None
        assert 0 < lease.fence <= 2**53
        second.give_back()
        assert first.take()


def test_a_process_that_hangs_with_the_lock_is_named(settings: Settings) -> None:
    first = process(settings, "a")
    assert first.take()
    with (
        wait_for_lock(path_of(settings), wait_s=0),
        pytest.raises(StorageError, match="has held") as raised,
    ):
        first.holds()
    assert "fuser -v" in str(raised.value.next_action)
    assert first.holds()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_without_locks_of_two_that_take_it_at_once_the_first_learns_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Both have read that it is free before either has written."""

    def none(*_: object) -> None:
        raise OSError(code, "no locks here")

    monkeypatch.setattr(fcntl, "flock", none)
    first, second = process(settings, "a"), process(settings, "b")
    assert first.take()
    path_of(settings).write_bytes(b"")  # as the second one saw it
    assert second.take()
    assert (first.holds(), second.holds()) == (False, True)
