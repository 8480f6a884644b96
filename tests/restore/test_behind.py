"""The store is some minutes behind: what its user has said since is not undone by a restore."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from hpcflow.history import RunHistory
from hpcflow.model.journal import CancelRequested, Decided, Held, JournalRecord, Resumed
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_forged import forge

STOPS = ["cancel", "hold", "stop"]


def stop(owner: Owner, run_dir: RunDir, how: str) -> None:
    now = owner.clock.now()
    records: dict[str, Sequence[JournalRecord]] = {
        "cancel": [],
        "hold": [Held(at=now, by="ada")],
        "stop": [Decided(at=now, after=1, action="stop", rule="budget", why="x")],
    }
    if how == "cancel":
        owner.cancel(run_dir)
    for record in records[how]:
        owner.say(run_dir.path, record)
    owner.look()
    owner.clock.advance(60)


def assert_goes_on(owner: Owner, run_dir: RunDir) -> None:
    records = journal.read(run_dir)
    assert not RunHistory.of(records).is_stopped
    assert not run_dir.cancel.exists()
    owner.clock.advance(600)
    owner.tick()
    owner.clock.advance(600)
    owner.tick()
    assert len(owner.alive()) == 1


@pytest.mark.parametrize("how", STOPS)
def test_a_run_that_was_resumed_since_goes_on(owner: Owner, how: str) -> None:
    """Only its request is newer than the store; or its next attempt, too."""
    run_dir = owner.mirrored(100)
    stop(owner, run_dir, how)
    owner.mirror(run_dir)
    owner.say(run_dir.path, Resumed(at=owner.clock.now(), by="ada"))
    run_dir.cancel.unlink(missing_ok=True)
    owner.look()
    purge(run_dir)
    assert owner.restore(run_dir).held is None
    assert_goes_on(owner, run_dir)


@pytest.mark.parametrize("how", STOPS)
def test_a_run_that_was_resumed_and_trained_since_goes_on(owner: Owner, how: str) -> None:
    run_dir = owner.mirrored(100)
    stop(owner, run_dir, how)
    owner.mirror(run_dir)
    owner.resume(run_dir)
    owner.look()
    owner.clock.advance(60)
    owner.end(owner.alive()[0], "PREEMPTED", checkpoint=200)
    owner.look()
    purge(run_dir)
    assert owner.restore(run_dir).held is None
    assert_goes_on(owner, run_dir)
    owner.assert_rebuilt_alike(run_dir.path.name)


def test_a_run_that_was_resumed_often_goes_on(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    for step in (200, 300, 400):
        stop(owner, run_dir, "hold")
        owner.resume(run_dir)
        owner.look()
        owner.clock.advance(60)
        if step == 300:
            owner.mirror(run_dir)
        owner.end(owner.alive()[0], "PREEMPTED", checkpoint=step)
        owner.look()
    purge(run_dir)
    assert owner.restore(run_dir).held is None
    assert_goes_on(owner, run_dir)


@pytest.mark.parametrize("record", [CancelRequested, Held])
def test_a_forged_stop_in_a_store_that_is_behind_has_no_effect(
    owner: Owner, record: type[CancelRequested | Held]
) -> None:
    """The ledger has read more than the store has: it knows each request that the user made."""
    run_dir = owner.mirrored(100)
    owner.resume(run_dir)
    owner.look()
    owner.clock.advance(60)
    owner.end(owner.alive()[0], "PREEMPTED", checkpoint=200)
    owner.look()
    forge(owner, run_dir, [record(at=owner.clock.now(), by="mallory")], has_record=True)
    purge(run_dir)
    owner.restore(run_dir)
    assert_goes_on(owner, run_dir)


@pytest.mark.parametrize("how", STOPS)
def test_a_run_that_was_stopped_since_stays_so(owner: Owner, how: str) -> None:
    run_dir = owner.mirrored(100)
    stop(owner, run_dir, how)
    purge(run_dir)
    owner.restore(run_dir)
    owner.clock.advance(3600)
    assert owner.tick().sent == {}
    assert owner.alive() == []


def test_no_record_of_the_future_hides_that_a_run_was_stopped(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    stop(owner, run_dir, "stop")
    at = owner.clock.now() + timedelta(days=3650)
    forge(
        owner,
        run_dir,
        [Decided(at=at, after=0, action="wait", rule="x", why="x")],
        has_record=True,
    )
    purge(run_dir)
    owner.restore(run_dir)
    owner.clock.advance(3600)
    assert owner.tick().sent == {}
    assert owner.alive() == []
