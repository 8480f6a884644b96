"""In a shared ledger other users write into the rows of one's runs. A restored journal takes no
more from it than what can do no harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from hpcflow.clock import to_text
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Held
from hpcflow.model.requests import is_cancelled, is_stopped
from hpcflow.model.state import Cause
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from tests.requeue.training import MINUTE
from tests.restore.mirrored import purge
from tests.restore.owner import Owner


def write(owner: Owner, run_dir: RunDir, table: str, **said: Any) -> None:
    """What another user adds to the journal in a row; the file seems to have been longer."""
    run_id = run_dir.path.name
    with open_ledger(owner.settings.ledger_url) as ledger:
        connection = ledger.connection()
        ((text,),) = connection.rows(f"SELECT journal FROM {table} WHERE run_id = ?", [run_id])
        values = [json.dumps({**json.loads(text), **said}), run_id]
        connection.execute(f"UPDATE {table} SET journal = ? WHERE run_id = ?", values)
        sql = "UPDATE source SET offset_bytes = 1000000 WHERE run_id = ?"
        connection.execute(sql, [run_id])


def _cancelled(owner: Owner, run_dir: RunDir) -> None:
    write(owner, run_dir, "run", cancel_requested_at=to_text(owner.clock.now()))


def _completed(owner: Owner, run_dir: RunDir) -> None:
    at = to_text(owner.clock.now())
    ended = {"at": at, "attempt": 1, "cause": "completed", "raw_state": "", "rule": "x"}
    write(owner, run_dir, "attempt", ended=ended)


def _stopped(owner: Owner, run_dir: RunDir) -> None:
    at = to_text(owner.clock.now())
    decided = {"record": "decided", "at": at, "after": 1, "action": "stop", "rule": "x", "why": "x"}
    write(owner, run_dir, "run", decided=decided)


def _another_job(owner: Owner, run_dir: RunDir) -> None:
    at = to_text(owner.clock.now())
    intended = {"at": at, "attempt": 1, "job_name": "mywork", "script": "x"}
    submitted = {"at": at, "attempt": 1, "job_id": "7", "how": "sbatch"}
    write(owner, run_dir, "attempt", intended=intended, submitted=submitted)


FALSIFIED: Final[list[Callable[[Owner, RunDir], None]]] = [
    _cancelled, _completed, _stopped, _another_job,
]  # fmt: skip


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


@pytest.mark.parametrize("is_purged", [False, True])
@pytest.mark.parametrize("falsify", FALSIFIED)
def test_nothing_ends_or_becomes_of_another_job_for_a_row(
    owner: Owner, falsify: Callable[[Owner, RunDir], None], is_purged: bool
) -> None:
    run_dir = owner.mirrored(100)
    before = journal.read(run_dir)
    owner.clock.advance(MINUTE)
    falsify(owner, run_dir)
    if is_purged:
        purge(run_dir)
    owner.restore(run_dir, is_shared=True, says_so=True)
    after = journal.read(run_dir)
    assert after[: len(before)] == before
    held = {"held"} if falsify is _cancelled else set()
    assert {each.record for each in after[len(before) :]} == {"restored", *held}
    assert not is_cancelled(after)
    assert is_stopped(after) == bool(held)


def test_what_only_the_ledger_knew_is_asked_of_slurm(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    launched = owner.resume(run_dir)
    owner.clock.advance(MINUTE)
    owner.end(launched.job_id, "NODE_FAIL")
    owner.look()
    owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    owner.look()
    purge(run_dir)
    owner.clock.advance(MINUTE)
    owner.restore(run_dir, is_shared=True)
    for _ in range(3):
        owner.clock.advance(10 * MINUTE)
        owner.look()
    after = owner.seen(run_dir.path.name)
    assert [each.job_id for each in after.attempts][1:] == [launched.job_id]
    assert after.attempts[1].cause is Cause.NODE_FAIL
    assert after.run.next_action == "held"
    assert owner.resume(run_dir).attempt == 3
