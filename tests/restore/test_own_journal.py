"""The journal of the home counts, whatever the store says. If it is lost, the run is held."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Final

import pytest

from hpcflow.cli.output import next_words
from hpcflow.clock import LATEST
from hpcflow.errors import MirrorError
from hpcflow.history.run import OLDER_HOME
from hpcflow.ledger.store import open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import (
    Accounted,
    CancelRequested,
    Decided,
    Ended,
    Held,
    Intended,
    JournalRecord,
    Refused,
    Released,
    Resumed,
    Standby,
    Submitted,
    Withdrawn,
)
from hpcflow.model.state import Cause, RunState
from hpcflow.restore import journals
from hpcflow.restore.journals import UNAPPROVED
from hpcflow.restore.ledger import FromStore, rebuild_from
from hpcflow.restore.remote_run import RemoteCheckpoint, RemoteRun
from hpcflow.storage import journal
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import keep_cancelled
from hpcflow.storage.rundir import read_run
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_foreign import change, take
from tests.restore.test_forged import forge
from tests.sampled import crossed

LATE: Final = LATEST - timedelta(days=366)


def end(owner: Owner, cause: Cause = Cause.COMPLETED, days: int = 0) -> Ended:
    at = owner.clock.now() + timedelta(days=days)
    return Ended(at=at, attempt=1, cause=cause, raw_state="COMPLETED", rule="x")


def _bill(owner: Owner) -> Accounted:
    return Accounted(
        at=owner.clock.now(),
        attempt=1,
        job_id="1001",
        source="accounting",
        elapsed_s=Decimal(3600),
        gpu_hours=Decimal(8),
        cost_usd=Decimal(500),
    )


def intent(owner: Owner, run_dir: RunDir, number: int = 1, days: int = 0) -> Intended:
    """Also of a number that no attempt has, as others may write it."""
    at = owner.clock.now() + timedelta(days=days)
    name = job_name(run_dir.path.name, number)
    first = Intended(at=at, attempt=1, job_name=name, scheduler="slurm")
    return first.model_copy(update={"attempt": number})


def _again(owner: Owner, run_dir: RunDir) -> list[JournalRecord]:
    submitted = Submitted(at=owner.clock.now(), attempt=1, job_id="77")
    return [intent(owner, run_dir), submitted, end(owner)]


def _request(kind: str, owner: Owner) -> JournalRecord:
    at = owner.clock.now()
    if kind == "stop":
        return Decided(at=at, after=1, action="stop", rule="budget", why="x")
    kinds: dict[str, type[CancelRequested | Held | Resumed | Released]] = {
        "cancel": CancelRequested,
        "hold": Held,
        "resume": Resumed,
        "release": Released,
    }
    return kinds[kind](at=at, by="mallory")


def _one(kind: str, owner: Owner, _: RunDir) -> list[JournalRecord]:
    return [_request(kind, owner)]


REQUESTS: Final = ["cancel", "hold", "resume", "release", "stop"]
#: What is added after the end of attempt 1, which was preempted.
ADDED: dict[str, Callable[[Owner, RunDir], list[JournalRecord]]] = {
    "completed": lambda owner, _: [end(owner)],
    "cancelled": lambda owner, _: [end(owner, Cause.CANCELLED)],
    "failed, ten years ago": lambda owner, _: [end(owner, Cause.FAILED, -3650)],
    "another job of this number": _again,
    "an intent far ahead": lambda owner, run_dir: [
        intent(owner, run_dir).model_copy(update={"at": LATE})
    ],
    "refused": lambda owner, _: [
        Refused(at=owner.clock.now(), attempt=1, reason="x", retryable=True)
    ],
    "withdrawn far ahead": lambda *_: [Withdrawn(at=LATE, attempt=1, reason="x")],
    "a later attempt": lambda owner, run_dir: [intent(owner, run_dir, 2)],
    "a standby": lambda owner, run_dir: [
        Standby(at=owner.clock.now(), says=intent(owner, run_dir, 2))
    ],
    "a number that no attempt has": lambda owner, run_dir: [intent(owner, run_dir, 10**30)],
    **{kind: partial(_one, kind) for kind in REQUESTS},
}
#: The journal of the store, as others leave it.
CHANGED: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda _: None,
    "emptied": lambda _: b"",
    "cut": lambda data: data[: data.rfind(b"\n", 0, -1) + 1],
    "changed": lambda data: data.replace(b"PREEMPTED", b"COMPLETED"),
    "of another run": lambda _: Held(at=LATE, by="mallory").to_line().encode(),
    "torn": lambda data: b"\0" * len(data),
    "garbage": lambda data: b"{}\n" * (len(data) // 3),
}


def _change(owner: Owner, run_dir: RunDir, how: str) -> None:
    name = f"{run_dir.path.name}/journal.jsonl"
    before = owner.remote.read(name)
    after = CHANGED[how](before)
    assert after != before
    if after is None:
        owner.remote.delete([name])
    else:
        owner.remote.put_bytes(after, name)


def _lose_ledger(owner: Owner) -> None:
    for path in owner.settings.home.path.glob("ledger.sqlite*"):
        path.unlink()


def _read_store(owner: Owner) -> FromStore:
    with open_ledger(owner.settings.ledger_url) as ledger:
        return rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)


LOST: Final = ["nothing", "ledger", "ledger, read from the store"]
#: What the home has lost of a run.
PARTS: Final = ["journal", "record"]


def _lose_part(owner: Owner, run_dir: RunDir, part: str) -> None:
    if part == "journal":
        run_dir.journal.unlink()
    else:
        owner.lose_record(run_dir)


def _lose(owner: Owner, lost: str) -> None:
    if lost != "nothing":
        _lose_ledger(owner)
    if lost == "ledger, read from the store":
        _read_store(owner)


def _assert_goes_on(owner: Owner, run_dir: RunDir) -> None:
    owner.look()
    assert owner.seen(run_dir.path.name).run.cause is Cause.PREEMPTED
    owner.clock.advance(600)
    assert list(owner.tick().sent) == [run_dir.path.name]
    assert [each.attempt for each in owner.seen(run_dir.path.name).attempts] == [1, 2]
    assert len(owner.alive()) == 1


def _assert_waits(owner: Owner, run_dir: RunDir) -> None:
    owner.look()
    for _ in range(3):
        assert owner.tick().sent == {}
        owner.clock.advance(3600)
    assert owner.alive() == []
    (held,) = [each for each in journal.read(run_dir) if isinstance(each, Held) and each.why]
    assert held.why in (journals.LOST, UNAPPROVED)


def _assert_same(owner: Owner, run_dir: RunDir, before: list[JournalRecord]) -> None:
    records = journal.read(run_dir)
    assert records[: len(before)] == before
    assert {each.record for each in records[len(before) :]} <= {"restored", "held"}
    owner.look()
    assert owner.seen(run_dir.path.name).run.cause is Cause.PREEMPTED


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("lost", LOST)
def test_what_a_store_has_more_is_not_used_and_the_run_waits(
    owner: Owner, added: str, lost: str
) -> None:
    """This home may be an older copy of itself, and a job that it does not know may run."""
    run_dir = owner.mirrored(100)
    before = journal.read(run_dir)
    forge(owner, run_dir, ADDED[added](owner, run_dir), has_record=True)
    purge(run_dir)
    _lose(owner, lost)
    assert "the store has more of its journal" in str(owner.restore(run_dir).held)
    _assert_same(owner, run_dir, before)
    owner.clock.advance(600)
    assert owner.tick().sent == {}
    owner.resume(run_dir)
    assert len(owner.alive()) == 1
    owner.look()
    owner.assert_rebuilt_alike(run_dir.path.name)


@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("lost", LOST)
def test_a_changed_journal_in_a_store_is_not_used_but_replaced(
    owner: Owner, changed: str, lost: str
) -> None:
    run_dir = owner.mirrored(100)
    before = journal.read(run_dir)
    _change(owner, run_dir, changed)
    purge(run_dir)
    _lose(owner, lost)
    assert owner.restore(run_dir).held is None
    _assert_same(owner, run_dir, before)
    assert owner.mirror_pass(run_dir).problems == {}
    said = owner.remote.read(f"{run_dir.path.name}/journal.jsonl")
    assert said == run_dir.journal.read_bytes()
    purge(run_dir)
    assert owner.restore(run_dir).held is None
    _assert_goes_on(owner, run_dir)


@pytest.mark.parametrize("part", [None, *PARTS])
def test_a_journal_that_is_changed_while_a_checkpoint_is_fetched_is_not_used(
    owner: Owner, part: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.mirrored(100)
    before = journal.read(run_dir)
    shutil.rmtree(run_dir.checkpoints)
    if part is not None:
        _lose_part(owner, run_dir, part)
    real = RemoteRun.checkpoint

    def checkpoint(remote: RemoteRun, train_step: int) -> RemoteCheckpoint:
        _change(owner, run_dir, "garbage")
        return real(remote, train_step)

    monkeypatch.setattr(RemoteRun, "checkpoint", checkpoint)
    owner.restore(run_dir)
    _assert_same(owner, run_dir, before)


@crossed("changed, lost, part", list(CHANGED), LOST, PARTS)
def test_a_changed_journal_in_the_place_of_a_lost_one_holds_the_run(
    owner: Owner, changed: str, lost: str, part: str
) -> None:
    run_dir = owner.mirrored(100)
    _change(owner, run_dir, changed)
    _lose_part(owner, run_dir, part)
    purge(run_dir)
    _lose(owner, lost)
    if changed in ("deleted", "emptied", "torn"):
        with pytest.raises(MirrorError, match="the state of the run's jobs is unknown"):
            owner.restore(run_dir)
        assert not run_dir.path.exists()
        return
    held = owner.restore(run_dir).held
    assert held == (journals.LOST if part == "journal" else UNAPPROVED)
    _assert_waits(owner, run_dir)


@crossed(
    "kind, ledger, part",
    REQUESTS,
    ["own", "lost", "read from the store"],
    PARTS,
    always=[("cancel", "read from the store", "journal")],
)
def test_a_run_whose_journal_is_lost_is_held_whatever_the_store_says(
    owner: Owner, kind: str, ledger: str, part: str
) -> None:
    run_dir = owner.mirrored(100)
    _lose_part(owner, run_dir, part)
    forge(owner, run_dir, [_request(kind, owner)], has_record=True)
    purge(run_dir)
    if ledger != "own":
        _lose_ledger(owner)
    if ledger == "read from the store":
        _read_store(owner)
    held = owner.restore(run_dir).held
    if (kind, ledger, part) == ("cancel", "read from the store", "journal"):
        assert Journal(run_dir).history.is_cancelled  # what the ledger says counts as the user's
        return
    assert held == (journals.LOST if part == "journal" else UNAPPROVED)
    assert not Journal(run_dir).history.is_cancelled
    assert not run_dir.cancel.exists()
    _assert_waits(owner, run_dir)
    assert next_words(owner.seen(run_dir.path.name).run) == "held"
    owner.resume(run_dir)
    assert len(owner.alive()) == 1


@pytest.mark.parametrize("known_by", ["home", "file"])
@pytest.mark.parametrize("part", PARTS)
def test_a_cancel_that_this_home_knows_counts_without_a_journal(
    owner: Owner, known_by: str, part: str
) -> None:
    run_dir = owner.mirrored(100)
    if known_by == "file":
        owner.cancel(run_dir)
        owner.mirror(run_dir)
    _lose_ledger(owner)
    purge(run_dir)
    if known_by == "home":
        keep_cancelled(owner.settings.home, run_dir.path.name)
    else:
        run_dir.path.mkdir(mode=0o700)
        run_dir.cancel.touch()
    _lose_part(owner, run_dir, part)
    forge(owner, run_dir, [_request("stop", owner)], has_record=True)
    owner.restore(run_dir)
    assert Journal(run_dir).history.is_cancelled
    assert run_dir.cancel.exists()
    owner.look()
    assert owner.tick().sent == {}
    assert owner.seen(run_dir.path.name).run.state is RunState.CANCELLED


@pytest.mark.parametrize("was_read", [True, False])
@pytest.mark.parametrize("how", ["cancel", "hold"])
def test_what_its_user_stopped_stays_stopped(owner: Owner, how: str, *, was_read: bool) -> None:
    """Whether or not the ledger has read it, and whatever the store has."""
    run_dir = owner.mirrored(100)
    owner.look()
    owner.clock.advance(60)
    if how == "cancel":
        owner.cancel(run_dir)
    else:
        journal.append(run_dir, _request("hold", owner))
    if was_read:
        owner.look()
    _change(owner, run_dir, "deleted")
    purge(run_dir)
    assert owner.restore(run_dir).held is None
    assert Journal(run_dir).history.is_cancelled is (how == "cancel")
    assert Journal(run_dir).history.is_held is (how == "hold")
    assert run_dir.cancel.exists() is (how == "cancel")
    owner.look()
    owner.clock.advance(3600)
    assert owner.tick().sent == {}


@pytest.mark.parametrize("is_alive", [True, False])
@pytest.mark.parametrize("is_purged", [True, False])
@pytest.mark.parametrize("part", PARTS)
def test_a_cancel_that_the_ledger_has_read_stops_a_run_whose_journal_is_lost(
    owner: Owner, part: str, *, is_alive: bool, is_purged: bool
) -> None:
    run_dir = owner.mirrored(100, end=None if is_alive else "PREEMPTED")
    owner.cancel(run_dir)
    owner.look()
    owner.mirror(run_dir)
    _lose_part(owner, run_dir, part)
    if is_purged:
        purge(run_dir)
    else:
        run_dir.cancel.unlink()
    owner.restore(run_dir)
    if part == "journal":
        assert Journal(run_dir).history.is_cancelled
        assert run_dir.cancel.exists()
    else:  # the ledger may have been read from the store, and nothing of the run is approved
        assert Journal(run_dir).history.hold is not None
    owner.look()
    owner.clock.advance(3600)
    assert owner.tick().sent == {}


@pytest.mark.parametrize("how", ["hold", "none"])
def test_a_changed_program_is_told_at_each_restore(owner: Owner, how: str) -> None:
    run_dir = owner.mirrored(100)
    if how == "hold":
        owner.say(run_dir.path, _request("hold", owner))
        owner.mirror(run_dir)
        owner.look()
    change(owner, run_dir, lambda said: said["spec"].update(command=["sh", "-c", "evil"]))
    owner.lose_record(run_dir)
    for _ in range(3):
        purge(run_dir)
        assert owner.restore(run_dir).is_unknown
    held = [each.why for each in journal.read(run_dir) if isinstance(each, Held) and each.why]
    assert held == [UNAPPROVED]


@pytest.mark.parametrize("part", [None, *PARTS])
def test_a_bucket_does_not_say_where_a_run_is_mirrored_that_its_url_names(
    owner: Owner, part: str | None
) -> None:
    run_dir = owner.mirrored(100)
    evil = {"url": "s3://evil/x", "endpoint_url": "http://evil.example.org", "shared": True}
    change(owner, run_dir, lambda said: said.update(mirror=evil))
    purge(run_dir)
    if part is not None:
        _lose_part(owner, run_dir, part)
    run = read_run(take(owner, run_dir.path.name, site_reference=owner.site.name))
    assert run.mirror is None or "evil" not in str(run.mirror)


def test_a_cancel_of_another_cluster_holds_the_run_here(owner: Owner, other: Owner) -> None:
    """Nobody here knows who requested it."""
    run_dir = owner.mirrored(100)
    owner.cancel(run_dir)
    owner.mirror(run_dir)
    there = take(other, run_dir.path.name)
    assert not Journal(there).history.is_cancelled
    assert Journal(there).history.is_held
    other.resume(there)
    assert len(other.alive()) == 1


def test_an_honest_store_that_is_behind_takes_nothing_back(owner: Owner) -> None:
    """It has the first attempt alone, and that without its end."""
    run_dir = owner.mirrored(100, end=None)
    before = run_dir.journal.read_bytes()
    owner.end(owner.alive()[0], "PREEMPTED", checkpoint=100)
    owner.look()
    owner.clock.advance(600)
    owner.tick()
    owner.look()
    purge(run_dir)
    owner.look()
    outcome = owner.restore(run_dir)
    assert outcome.held is None
    assert run_dir.journal.read_bytes().startswith(before)
    assert [each.attempt for each in owner.seen(run_dir.path.name).attempts] == [1, 2]


def test_a_job_that_only_the_ledger_knows_finds_no_claim_of_another(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.clock.advance(600)
    owner.tick()
    assert len(owner.alive()) == 1
    owner.remote.put_bytes(b"77\n", f"{run_dir.path.name}/attempts/0002/claim")
    purge(run_dir)
    owner.restore(run_dir)
    assert not run_dir.attempt(2).claim.exists()


@pytest.mark.parametrize("number", [-7, 0, 10**30])
def test_without_a_record_a_number_that_cannot_be_says_nothing(owner: Owner, number: int) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [intent(owner, run_dir, number)])
    purge(run_dir)
    owner.restore(run_dir)
    assert Journal(run_dir).history.last.number == 1


@pytest.mark.parametrize("number", [10_001, 999_999])
def test_without_a_record_a_number_that_no_attempt_has_is_refused(
    owner: Owner, number: int
) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [intent(owner, run_dir, number)])
    purge(run_dir)
    with pytest.raises(MirrorError, match="hpcflow did not write it"):
        owner.restore(run_dir)


def test_a_run_that_was_cancelled_while_it_was_gone_never_says_that_it_continues(
    owner: Owner,
) -> None:
    run_dir = owner.mirrored(100)
    owner.say(run_dir.path, _request("hold", owner))
    owner.mirror(run_dir)
    owner.say(run_dir.path, _request("resume", owner))
    owner.look()
    purge(run_dir)
    keep_cancelled(owner.settings.home, run_dir.path.name)
    owner.restore(run_dir)
    said = [each.record for each in journal.read(run_dir)]
    assert "resumed" not in said[said.index("cancel_requested") :]
    assert Journal(run_dir).history.is_cancelled


def test_a_bill_that_the_ledger_has_read_since_is_kept(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    bill = _bill(owner)
    owner.say(run_dir.path, bill)
    owner.look()
    before = owner.seen(run_dir.path.name).attempts[0]
    assert before.cost_usd == "500"
    purge(run_dir)
    owner.restore(run_dir)
    assert [each for each in journal.read(run_dir) if isinstance(each, Accounted)] == [bill]
    assert owner.seen(run_dir.path.name).attempts[0].cost_usd == "500"


@pytest.mark.parametrize("zeros", ["all", "tail"])
def test_a_journal_of_zeros_takes_nothing_that_the_ledger_has_read(
    owner: Owner, zeros: str
) -> None:
    run_dir = owner.mirrored(100)
    before = run_dir.journal.read_bytes()
    owner.clock.advance(600)
    owner.tick()
    owner.end(owner.alive()[0], "COMPLETED", exit_code=0)
    owner.look()
    assert owner.seen(run_dir.path.name).run.state is RunState.COMPLETED
    size = len(run_dir.journal.read_bytes())
    kept = before if zeros == "tail" else b""
    run_dir.journal.write_bytes(kept + b"\0" * (size - len(kept)))
    owner.restore(run_dir)
    assert owner.seen(run_dir.path.name).run.state is RunState.COMPLETED
    owner.clock.advance(3600)
    assert owner.tick().sent == {}


def test_without_a_record_the_ledger_says_what_an_attempt_cost(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    bill = _bill(owner)
    owner.say(run_dir.path, bill)
    owner.look()
    later = {"at": owner.clock.now() + timedelta(days=1), "cost_usd": Decimal(1)}
    forge(owner, run_dir, [bill.model_copy(update=later)])
    purge(run_dir)
    owner.restore(run_dir)
    assert owner.seen(run_dir.path.name).attempts[0].cost_usd == "500"


@pytest.mark.parametrize("run_json", ["same", "changed", "of another place"])
@pytest.mark.parametrize("added", ["completed", "cancelled", "cancel", "resume", "bill"])
def test_a_ledger_is_read_from_the_record_alone_whatever_the_store_says(
    owner: Owner, added: str, run_json: str
) -> None:
    run_dir = owner.mirrored(100)
    owner.look()
    before = owner.seen(run_dir.path.name)
    records = [_bill(owner)] if added == "bill" else ADDED[added](owner, run_dir)
    forge(owner, run_dir, records, has_record=True)
    if run_json == "changed":
        change(owner, run_dir, lambda said: said["spec"].update(command=["sh", "-c", "evil"]))
    elif run_json == "of another place":
        change(owner, run_dir, lambda said: said.update(place="0123456789abcdef"))
    purge(run_dir)
    _lose_ledger(owner)
    assert _read_store(owner).problems == []
    after = owner.seen(run_dir.path.name)
    assert after.run.cause is before.run.cause is Cause.PREEMPTED
    assert after.run.next_action == before.run.next_action
    assert after.attempts[0].cost_usd == before.attempts[0].cost_usd


@pytest.mark.parametrize("added", ["completed", "cancelled"])
def test_without_a_record_a_ledger_is_read_from_the_store(owner: Owner, added: str) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, ADDED[added](owner, run_dir))
    purge(run_dir)
    _lose_ledger(owner)
    _read_store(owner)
    assert owner.seen(run_dir.path.name).run.cause is not Cause.PREEMPTED


def test_a_ledger_says_what_this_home_knows_of_a_run_that_went_on_at_another_place(
    owner: Owner, other: Owner
) -> None:
    run_dir = owner.mirrored(100)
    there = take(other, run_dir.path.name)
    other.resume(there)
    other.end(other.alive()[0], "COMPLETED", exit_code=0)
    other.look()
    other.mirror(there)
    purge(run_dir)
    _lose_ledger(owner)
    _read_store(owner)
    assert owner.seen(run_dir.path.name).run.cause is Cause.PREEMPTED


def test_there_and_back_the_journal_of_the_other_place_is_not_replaced(
    owner: Owner, other: Owner
) -> None:
    run_dir = owner.mirrored(100)
    there = take(other, run_dir.path.name)
    other.resume(there)
    other.mirror(there)
    take(owner, run_dir.path.name, even_if_running=True)
    other.clock.advance(60)
    other.end(other.alive()[0], "PREEMPTED", checkpoint=200)
    other.look()
    other.mirror(there)
    before = owner.remote.read(f"{run_dir.path.name}/journal.jsonl")
    (problem,) = owner.mirror_pass(run_dir).problems.values()
    assert "has more of the run's journal" in problem.message or "another place" in problem.message
    assert owner.remote.read(f"{run_dir.path.name}/journal.jsonl") == before


@pytest.mark.parametrize("is_purged", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
def test_an_older_home_replaces_nothing_in_the_store_before_its_user_says_so(
    owner: Owner, *, is_purged: bool, is_known: bool
) -> None:
    """It came back from a backup, and lacks an attempt that the store has as completed."""
    run_dir, name = owner.mirrored(100), "journal.jsonl"
    name = f"{run_dir.path.name}/{name}"
    more = [intent(owner, run_dir, 2), end(owner).model_copy(update={"attempt": 2})]
    lines = run_dir.journal.read_bytes() + "".join(each.to_line() for each in more).encode()
    owner.remote.put_bytes(lines, name)
    if not is_known:
        run_dir.mirrored.unlink()
    if is_purged:
        purge(run_dir)
    else:
        (problem,) = _pass_after_a_line(owner, run_dir)
        assert "has more of the run's journal" in problem
    assert owner.restore(run_dir).held == OLDER_HOME
    owner.look()
    owner.clock.advance(600)
    assert owner.tick().sent == {}
    (problem,) = _pass_after_a_line(owner, run_dir)
    assert f"hpcflow resume {run_dir.path.name}" in problem
    assert owner.remote.read(name) == lines
    owner.resume(run_dir)
    assert _pass_after_a_line(owner, run_dir) == []
    assert owner.remote.read(name) == run_dir.journal.read_bytes()
    assert owner.restore(run_dir).held is None


def _pass_after_a_line(owner: Owner, run_dir: RunDir) -> list[str]:
    wait = Decided(at=owner.clock.now(), after=1, action="wait", rule="x", why="x")
    owner.say(run_dir.path, wait)
    owner.clock.advance(120)
    problems = owner.mirror_pass(run_dir).problems.values()
    return [f"{each.message} {each.next_action}" for each in problems]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_pass_replaces_lines_of_the_store_that_were_changed(
    owner: Owner, *, is_known: bool
) -> None:
    """Without the checksum of what was sent, the store may be that of a newer home."""
    run_dir = owner.mirrored(100)
    _change(owner, run_dir, "changed")
    name = f"{run_dir.path.name}/journal.jsonl"
    changed = owner.remote.read(name)
    if not is_known:
        run_dir.mirrored.unlink()
    problems = _pass_after_a_line(owner, run_dir)
    assert ["has more of the run's journal" in each for each in problems] == [True] * (not is_known)
    there = owner.remote.read(name)
    assert there == (run_dir.journal.read_bytes() if is_known else changed)
