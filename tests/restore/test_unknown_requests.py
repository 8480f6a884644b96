"""A request that only the store knows is not carried out: the run is held, and says why."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TypeAlias

import pytest

from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import (
    CancelRequested,
    Decided,
    Ended,
    Held,
    Intended,
    JournalRecord,
    Released,
    Resumed,
    Standby,
)
from hpcflow.model.requests import is_cancelled, is_held
from hpcflow.model.state import Cause, RunState
from hpcflow.restore.ledger import rebuild_from
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import keep_cancelled
from tests.restore.mirrored import mirror, purge
from tests.restore.owner import Owner
from tests.restore.test_foreign import take
from tests.restore.test_forged import forge

Request: TypeAlias = type[CancelRequested] | type[Held] | type[Resumed] | type[Released]
REQUESTS = [CancelRequested, Held, Resumed, Released, "stop"]


def request(kind: Request | str, owner: Owner, *, days: int = 0) -> JournalRecord:
    at = owner.clock.now() + timedelta(days=days)
    if isinstance(kind, str):
        return Decided(at=at, after=1, action="stop", rule="budget", why="x")
    return kind(at=at, by="mallory")


def lose_ledger(owner: Owner) -> None:
    for path in owner.settings.home.path.glob("ledger.sqlite*"):
        path.unlink()


def let_daemon_work(owner: Owner) -> None:
    for _ in range(3):
        assert owner.tick().sent == {}
        owner.clock.advance(3600)
    assert owner.alive() == []


def hold_of(run_dir: RunDir) -> str:
    records = journal.read(run_dir)
    assert not is_cancelled(records)
    assert not run_dir.cancel.exists()
    (held,) = [each for each in records if isinstance(each, Held) and each.why]
    assert held.why is not None
    return held.why


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("days", [-3650, 0, 3650])
@pytest.mark.parametrize("has_ledger", [True, False], ids=["ledger", "no ledger"])
def test_a_forged_request_holds_the_run_or_is_dropped(
    owner: Owner, kind: Request | str, days: int, *, has_ledger: bool
) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [request(kind, owner, days=days)])
    purge(run_dir)
    if not has_ledger:
        lose_ledger(owner)
    outcome = owner.restore(run_dir)
    why = hold_of(run_dir)
    assert outcome.held == why
    assert "only the store says" in why
    by = "the rule budget" if kind == "stop" else "mallory"
    assert f"by {by} on " in why
    let_daemon_work(owner)
    assert owner.seen(run_dir.path.name).run.next_action == "held"
    owner.resume(run_dir)
    assert len(owner.alive()) == 1


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_is_left_on_scratch_knows_the_requests_too(owner: Owner, kind: Request | str) -> None:
    """run.json and the journal are there, and the ledger is lost."""
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [request(kind, owner)])
    shutil.rmtree(run_dir.checkpoints)
    lose_ledger(owner)
    owner.look()
    owner.restore(run_dir)
    assert "only the store says" in hold_of(run_dir)
    let_daemon_work(owner)


def test_a_forged_cancel_is_taken_back_by_a_release_and_a_true_cancel_counts(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [request(CancelRequested, owner)])
    purge(run_dir)
    owner.restore(run_dir)
    owner.clock.advance(60)
    owner.say(run_dir.path, Released(at=owner.clock.now(), by="ada"))
    owner.look()
    assert len(owner.tick().sent) == 1
    owner.cancel(run_dir)
    owner.look()
    assert owner.seen(run_dir.path.name).run.state is RunState.CANCELLED
    assert is_cancelled(journal.read(run_dir))


def test_a_forged_cancel_stays_without_effect_when_it_is_restored_twice(owner: Owner) -> None:
    """The hold was not mirrored before the next purge."""
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [request(CancelRequested, owner)])
    for _ in range(3):
        purge(run_dir)
        owner.restore(run_dir)
        assert not is_cancelled(journal.read(run_dir))
        assert is_held(journal.read(run_dir))
        assert not run_dir.cancel.exists()
        owner.look()
    let_daemon_work(owner)
    owner.assert_rebuilt_alike(run_dir.path.name)


@pytest.mark.parametrize("known_by", ["ledger", "home", "scratch", "file"])
def test_a_true_cancel_stays_true(owner: Owner, known_by: str) -> None:
    run_dir = owner.mirrored(100)
    if known_by != "home":
        owner.cancel(run_dir)
        mirror(run_dir, owner.remote)
    if known_by == "ledger":
        owner.look()
    else:
        lose_ledger(owner)
    if known_by == "scratch":
        shutil.rmtree(run_dir.checkpoints)
    else:
        purge(run_dir)
    if known_by == "home":
        keep_cancelled(owner.settings.home, run_dir.path.name)
    if known_by == "file":
        run_dir.path.mkdir(mode=0o700)
        run_dir.cancel.touch()
    forge(owner, run_dir, [request("stop", owner)])
    owner.restore(run_dir)
    assert is_cancelled(journal.read(run_dir))
    assert run_dir.cancel.exists()
    let_daemon_work(owner)
    assert owner.seen(run_dir.path.name).run.state is RunState.CANCELLED


def test_a_true_hold_is_no_reason_of_a_restore(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    owner.look()
    mirror(run_dir, owner.remote)
    purge(run_dir)
    assert owner.restore(run_dir).held is None
    assert is_held(journal.read(run_dir))


def test_a_ledger_that_was_read_from_the_store_knows_no_request(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [request(CancelRequested, owner)])
    purge(run_dir)
    lose_ledger(owner)
    with open_ledger(owner.settings.ledger_url) as ledger:
        rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)
    owner.restore(run_dir)
    assert "only the store says: cancel requested by mallory" in hold_of(run_dir)
    owner.resume(run_dir)
    mirror(run_dir, owner.remote)
    owner.end(owner.alive()[0], "PREEMPTED", checkpoint=200)
    owner.look()
    purge(run_dir)
    assert owner.restore(run_dir).held is None  # the ledger has read the run directory since


def test_a_cancel_of_another_cluster_holds_the_run_here(owner: Owner, other: Owner) -> None:
    """Nobody here knows who requested it."""
    run_dir = owner.mirrored(100)
    owner.cancel(run_dir)
    mirror(run_dir, owner.remote)
    there = take(other, run_dir.path.name)
    assert "only the store says: cancel requested by" in hold_of(there)
    other.resume(there)
    assert len(other.alive()) == 1


def test_a_text_of_the_store_is_no_longer_than_a_line(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [Held(at=owner.clock.now(), by="x" * 100_000)])
    purge(run_dir)
    owner.restore(run_dir)
    assert len(hold_of(run_dir)) < 300


def _ended(owner: Owner, attempt: int) -> list[JournalRecord]:
    now = owner.clock.now()
    name = f"hpcflow:x:{attempt}"
    intent = Intended(at=now, attempt=attempt, job_name=name, scheduler="slurm")
    end = Ended(at=now, attempt=attempt, cause=Cause.FAILED, raw_state="FAILED", rule="x")
    return [intent, end]


def test_forged_attempts_after_a_forged_cancel_do_not_hide_it(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [request(CancelRequested, owner), *_ended(owner, 2)])
    purge(run_dir)
    owner.restore(run_dir)
    assert "cancel requested by mallory" in hold_of(run_dir)


@pytest.mark.parametrize("is_standby", [False, True])
def test_an_attempt_that_only_the_store_knows_holds_the_run(
    owner: Owner, *, is_standby: bool
) -> None:
    """Its job id could be that of any job, and the run would end as that one does."""
    run_dir = owner.mirrored(100)
    records = _ended(owner, 2)
    if is_standby:
        records = [Standby(at=each.at, says=each) for each in records if isinstance(each, Intended)]
    forge(owner, run_dir, records)
    purge(run_dir)
    owner.restore(run_dir)
    assert "only the store says: attempt 2 on" in hold_of(run_dir)
    let_daemon_work(owner)


@pytest.mark.parametrize("cause", [Cause.COMPLETED, Cause.CANCELLED, Cause.FAILED])
@pytest.mark.parametrize("days", [-3650, 0, 3650])
def test_an_attempt_ended_as_the_ledger_has_it(owner: Owner, cause: Cause, days: int) -> None:
    run_dir = owner.mirrored(100)
    at = owner.clock.now() + timedelta(days=days)
    end = Ended(at=at, attempt=1, cause=cause, raw_state="COMPLETED", rule="x")
    forge(owner, run_dir, [end])
    purge(run_dir)
    owner.restore(run_dir)
    assert owner.seen(run_dir.path.name).run.cause is Cause.PREEMPTED
    owner.clock.advance(600)
    owner.tick()
    assert len(owner.alive()) == 1
