"""What a store says of an attempt that this home knows must be the same, or counts for nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from hpcflow.clock import LATEST
from hpcflow.errors import MirrorError
from hpcflow.ledger.store import open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import (
    CancelRequested,
    Ended,
    Held,
    Intended,
    JournalRecord,
    Refused,
    Submitted,
    Withdrawn,
)
from hpcflow.model.requests import is_cancelled
from hpcflow.model.state import Cause, RunState
from hpcflow.restore.publish import publish_new
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import keep_cancelled
from tests.restore.mirrored import mirror, purge
from tests.restore.owner import Owner
from tests.restore.test_forged import forge

LATE = LATEST - timedelta(days=366)


def _end(owner: Owner, run_dir: RunDir, cause: Cause = Cause.COMPLETED, days: int = 0) -> Ended:
    del run_dir
    at = owner.clock.now() + timedelta(days=days)
    return Ended(at=at, attempt=1, cause=cause, raw_state="COMPLETED", rule="x")


def _intent(owner: Owner, run_dir: RunDir, number: int = 1, days: int = 0) -> Intended:
    at = owner.clock.now() + timedelta(days=days)
    name = job_name(run_dir.path.name, number)
    return Intended(at=at, attempt=number, job_name=name, scheduler="slurm")


def _again(owner: Owner, run_dir: RunDir) -> list[JournalRecord]:
    submitted = Submitted(at=owner.clock.now(), attempt=1, job_id="77")
    return [_intent(owner, run_dir), submitted, _end(owner, run_dir)]


#: What is appended about attempt 1, which was preempted.
FORGED: dict[str, Callable[[Owner, RunDir], list[JournalRecord]]] = {
    "completed": lambda owner, run_dir: [_end(owner, run_dir)],
    "cancelled": lambda owner, run_dir: [_end(owner, run_dir, Cause.CANCELLED)],
    "failed, ten years ago": lambda owner, run_dir: [_end(owner, run_dir, Cause.FAILED, -3650)],
    "another job of this number": _again,
    "an intent long ago": lambda owner, run_dir: [_intent(owner, run_dir, days=-1)],
    "an intent far ahead": lambda owner, run_dir: [
        _intent(owner, run_dir).model_copy(update={"at": LATE})
    ],
    "an end far ahead": lambda owner, run_dir: [
        _end(owner, run_dir, Cause.FAILED).model_copy(update={"at": LATE})
    ],
    "refused": lambda owner, _: [
        Refused(at=owner.clock.now(), attempt=1, reason="x", retryable=True)
    ],
    "withdrawn far ahead": lambda *_: [Withdrawn(at=LATE, attempt=1, reason="x")],
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("is_seen", [False, True], ids=["at once", "the purge was seen"])
def test_a_preempted_run_continues_whatever_a_store_says_of_its_attempt(
    owner: Owner, forged: str, is_seen: bool
) -> None:
    run_dir = owner.mirrored(100)
    run_id = run_dir.path.name
    forge(owner, run_dir, FORGED[forged](owner, run_dir))
    purge(run_dir)
    if is_seen:
        owner.look()
    owner.restore(run_dir)
    assert owner.seen(run_id).run.cause is Cause.PREEMPTED
    owner.clock.advance(600)
    assert list(owner.tick().sent) == [run_id]
    assert [each.attempt for each in owner.seen(run_id).attempts] == [1, 2]
    assert len(owner.alive()) == 1


@pytest.mark.parametrize("forged", ["completed", "another job of this number", "refused"])
def test_a_run_whose_journal_is_here_takes_nothing_of_its_attempts_from_a_store(
    owner: Owner, forged: str
) -> None:
    run_dir = owner.mirrored(100, end=None)
    before = run_dir.journal.read_bytes()
    forge(owner, run_dir, FORGED[forged](owner, run_dir))
    outcome = owner.restore(run_dir, says_so=True)
    assert outcome.is_contradicted
    assert run_dir.journal.read_bytes().startswith(before)
    assert not any(isinstance(each, (Ended, Refused)) for each in journal.read(run_dir))
    assert owner.seen(run_dir.path.name).run.state is not RunState.COMPLETED


def test_an_honest_store_contradicts_nothing(owner: Owner) -> None:
    """It is behind: it has the first attempt alone, and that without its end."""
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
    assert not outcome.is_contradicted
    assert outcome.held is None
    assert run_dir.journal.read_bytes().startswith(before)
    assert [each.attempt for each in owner.seen(run_dir.path.name).attempts] == [1, 2]


def test_a_cancelled_run_stays_so_whatever_a_store_says(owner: Owner) -> None:
    run_dir = owner.trained(100)
    journal.append(run_dir, CancelRequested(at=owner.clock.now(), by="ada"))
    owner.look()
    mirror(run_dir, owner.remote)
    owner.clock.advance(60)
    forge(owner, run_dir, [Held(at=owner.clock.now(), by="mallory", why="x")])
    purge(run_dir)
    owner.restore(run_dir)
    assert is_cancelled(journal.read(run_dir))
    assert run_dir.cancel.exists()


@pytest.mark.parametrize("number", [-7, 0, 10_001, 999_999, 10**30])
def test_a_number_that_no_attempt_has_is_refused(owner: Owner, number: int) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, [_intent(owner, run_dir).model_copy(update={"attempt": number})])
    purge(run_dir)
    with pytest.raises(MirrorError, match="hpcflow did not write it"):
        owner.restore(run_dir)


def test_a_run_that_is_cancelled_while_it_is_restored_is_cancelled(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)

    def published(*args: Any, **options: Any) -> bool:
        keep_cancelled(owner.settings.home, run_dir.path.name)
        return publish_new(*args, **options)

    monkeypatch.setattr("hpcflow.restore.restore.publish_new", published)
    owner.restore(run_dir)
    assert is_cancelled(journal.read(run_dir))
    assert run_dir.cancel.exists()
    owner.clock.advance(600)
    assert owner.tick().sent == {}
    with open_ledger(owner.settings.ledger_url) as ledger:
        assert ledger.run(run_dir.path.name).run.state is RunState.CANCELLED
