"""A bucket settles no bill, opens no commitment, and counts as no trial of a sweep."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from hpcflow.budgets.records import OnExceeded
from hpcflow.history import RunHistory
from hpcflow.ledger.store import open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import (
    Accounted,
    Ended,
    Intended,
    JournalRecord,
    Observed,
    Released,
    Restored,
    Standby,
    Submitted,
)
from hpcflow.model.state import AttemptState, Cause
from hpcflow.restore.ledger import rebuild_from
from hpcflow.storage.layout import RunDir
from tests.budgets.desk import Budgeted
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_forged import forge
from tests.sampled import crossed
from tests.sweeps.searched import Searched

PLANTED: Final = "small-20260301-abcdefgh"
Forge = Callable[[str, int, datetime], list[JournalRecord]]


class Desk(Budgeted, Owner):
    """A person with budgets and a bucket."""


class SweepOwner(Searched, Owner):
    """A person with a sweep and a bucket."""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _sent(run_id: str, number: int, at: datetime, **words: Any) -> list[JournalRecord]:
    name = job_name(run_id, number)
    intended = Intended(at=at, attempt=number, job_name=name, scheduler="slurm", partition="gpu")
    return [
        # Unchecked, as others write it.
        intended.model_copy(update={"cluster": "devcluster", **words}),
        Submitted(at=at, attempt=number, job_id="77"),
    ]


def _ended(number: int, at: datetime, cause: Cause = Cause.PREEMPTED) -> JournalRecord:
    raw = cause.value.upper()
    return Ended(at=at, attempt=number, cause=cause, raw_state=raw, ended_at=at, rule="x")


def _bill(number: int, at: datetime, source: str = "accounting", tries: int = 1) -> JournalRecord:
    said = {
        **{"record": "accounted", "at": at, "attempt": number, "job_id": "77", "source": source},
        **{"started_at": at, "ended_at": at, "elapsed_s": 60, "gpu_hours": "1000000"},
        **{"cost_usd": "1000000", "tries": tries},
    }
    return Accounted.model_validate(said)


def _years(number: int, at: datetime) -> JournalRecord:
    begin = at - timedelta(days=9000)
    return Observed(
        at=at, attempt=number, job_id="77", state=AttemptState.ENDED, raw_state="PREEMPTED",
        submitted_at=begin, started_at=begin, ended_at=at,
    )  # fmt: skip


def _billed(_: str, number: int, at: datetime) -> list[JournalRecord]:
    return [_ended(number, at), _bill(number, at)]


def _estimated(_: str, number: int, at: datetime) -> list[JournalRecord]:
    return [_ended(number, at), _bill(number, at, "events")]


def _estimated_for_good(_: str, number: int, at: datetime) -> list[JournalRecord]:
    return [_ended(number, at), _bill(number, at, "events", 99)]


def _ran_for_years(_: str, number: int, at: datetime) -> list[JournalRecord]:
    return [_years(number, at), _ended(number, at)]


def _elsewhere(run_id: str, number: int, at: datetime) -> list[JournalRecord]:
    sent = _sent(run_id, number, at, cluster="far")
    return [*sent, _years(number, at), _ended(number, at)]


FORGED: Final = [_billed, _estimated, _estimated_for_good, _ran_for_years, _elsewhere]


def _looks(desk: Desk, often: int = 5) -> None:
    for _ in range(often):
        desk.clock.advance(700)
        desk.tick()
        desk.restores_for_the_daemon()


def _set(desk: Desk) -> None:
    for scope, unit in _scopes(desk):
        desk.set(scope, hard="100", unit=unit, on_exceeded=OnExceeded.SAVE_AND_STOP)


def _scopes(desk: Desk) -> list[tuple[str, str]]:
    return [("project:vision", "cost_usd"), (f"user:{desk.settings.user}", "gpu_hours")]


def _used(desk: Desk) -> list[Decimal]:
    used = [desk.budget(scope).used(unit, desk.clock.now()) for scope, unit in _scopes(desk)]
    return [each.spent + each.committed for each in used]


@crossed(
    "forged, number, left",
    FORGED,
    [1, 9],
    ["nothing", "all but checkpoints", "nothing, and a ledger from it"],
)
def test_no_bucket_empties_a_budget(desk: Desk, forged: Forge, number: int, left: str) -> None:
    _set(desk)
    run_dir = desk.mirrored(100, end=None if number == 1 else "PREEMPTED")
    others = [desk.launch() for _ in range(2)]
    desk.tick()
    desk.mirror(run_dir)
    name, at = run_dir.path.name, desk.clock.now()
    sent = [] if number == 1 else _sent(name, number, at)
    forge(desk, run_dir, [*sent, *forged(name, number, at)])
    if left == "all but checkpoints":
        shutil.rmtree(run_dir.checkpoints)
    else:
        purge(run_dir)
    if left == "nothing, and a ledger from it":
        with open_ledger(desk.settings.ledger_url) as ledger:
            rebuild_from(ledger, desk.remote, desk.settings, site=desk.site)
        _looks(desk, 1)
    desk.restore(run_dir)
    _looks(desk)
    assert all(used <= 15 for used in _used(desk))
    assert not any(desk.dir_of(each).attempt(1).notice.exists() for each in others)
    desk.launch()


def _plant(owner: Owner, run_dir: RunDir, run_id: str, records: Sequence[JournalRecord]) -> None:
    """Put a run that never was beside a real one."""
    said = json.loads(run_dir.run_json.read_text())
    place = said["run_dir"].replace(run_dir.path.name, run_id)
    said = {**said, "run_id": run_id, "run_dir": place}
    lines = "".join(each.to_line() for each in records).encode()
    owner.remote.put_bytes(json.dumps(said).encode(), f"{run_id}/run.json")
    owner.remote.put_bytes(lines, f"{run_id}/journal.jsonl")


def _find(owner: Owner, run_id: str, how: str) -> None:
    if how == "from":
        owner.fetch(run_id, owner.remote)
        return
    with open_ledger(owner.settings.ledger_url) as ledger:
        assert run_id in rebuild_from(ledger, owner.remote, owner.settings, site=owner.site).linked


@pytest.mark.parametrize("how", ["rebuild", "from"])
@pytest.mark.parametrize("forged", [*FORGED, lambda _, __, ___: []])
def test_no_planted_run_takes_a_budget(desk: Desk, forged: Forge, how: str) -> None:
    """Nor one that seems to run."""
    _set(desk)
    run_dir = desk.mirrored(100, end="COMPLETED")
    _looks(desk)
    before, at = _used(desk), desk.clock.now()
    records = [*_sent(PLANTED, 1, at), *forged(PLANTED, 1, at)]
    _plant(desk, run_dir, PLANTED, records)
    _find(desk, PLANTED, how)
    for _ in range(6):
        _looks(desk, 1)
        assert _used(desk) == before
    desk.launch()


def test_a_bill_of_zero_does_not_free_what_was_committed(desk: Desk) -> None:
    desk.set(hard="100")
    run_dir = desk.mirrored(100, end=None)
    at = desk.clock.now()
    bill = _bill(1, at).model_copy(update={"cost_usd": Decimal(0), "gpu_hours": Decimal(0)})
    last_month = _ended(1, at).model_copy(update={"ended_at": at - timedelta(days=60)})
    forge(desk, run_dir, [last_month, bill], has_record=True)
    purge(run_dir)
    before = _used(desk)
    desk.restore(run_dir)
    desk.look()
    assert not any(each["record"] == "settled" for each in desk.lines())
    assert _used(desk) == before


def test_accounting_bills_a_restored_attempt(desk: Desk) -> None:
    desk.set(hard="100")
    run_dir = desk.mirrored(100, end=None)
    purge(run_dir)
    desk.restore(run_dir)
    (job_id,) = desk.alive()
    desk.train(job_id, 10)
    assert desk.usd() == ("1.00", "0.00")
    assert [each["is_final"] for each in desk.lines() if each["record"] == "settled"][-1]


def test_a_restored_attempt_is_not_billed_for_another_job(desk: Desk) -> None:
    """Its id and its times are those of an expensive job of the same person."""
    desk.set(hard="100")
    run_dir = desk.mirrored(100, end="COMPLETED")
    other = desk.launch()
    assert other.job_id is not None
    desk.train(other.job_id, 30)
    before = desk.usd()
    (job,) = desk.slurm.accounting([other.job_id], desk.clock.now() - timedelta(days=1))
    at = desk.clock.now()
    name = run_dir.path.name
    seen = Observed(
        at=at, attempt=2, job_id=other.job_id, state=AttemptState.ENDED, raw_state="COMPLETED",
        submitted_at=job.submitted_at, started_at=job.started_at, ended_at=job.ended_at,
    )  # fmt: skip
    intended, _ = _sent(name, 2, at)
    sent = Submitted(at=at, attempt=2, job_id=other.job_id)
    desk.mirror(run_dir)
    forge(desk, run_dir, [intended, sent, seen, _ended(2, at, Cause.COMPLETED)])
    purge(run_dir)
    desk.restore(run_dir)
    _looks(desk)
    assert desk.usd() == before


@pytest.mark.parametrize("how", ["rebuild", "from"])
def test_no_planted_run_stops_a_sweep(tmp_path: Path, how: str) -> None:
    owner = SweepOwner(tmp_path)
    owner.begin("parallel: 2\nbudget: {trials: 4}\n")
    assert owner.round().problems == []
    run_id = "search-t77-20260301-abcdefgh"
    at = owner.clock.now()
    _plant(owner, owner.run_dir(0), run_id, [*_sent(run_id, 1, at), _ended(1, at, Cause.COMPLETED)])
    _find(owner, run_id, how)
    assert owner.round().problems == []
    owner.completes(0, 0.5)
    assert owner.round().problems == []
    assert owner.states()[0] == "complete"


def test_no_changed_run_stops_a_sweep(tmp_path: Path) -> None:
    """A run that is known, and said to be a trial."""
    owner = SweepOwner(tmp_path)
    run_dir = owner.mirrored(100, end="COMPLETED")
    owner.begin("parallel: 2\nbudget: {trials: 4}\n")
    assert owner.round().problems == []
    said = json.loads(run_dir.run_json.read_text())
    said["parent_sweep"] = owner.sweep_dir.sweep_id
    owner.remote.put_bytes(json.dumps(said).encode(), f"{run_dir.path.name}/run.json")
    purge(run_dir)
    owner.restore(run_dir)
    owner.look()
    assert owner.round().problems == []


@pytest.mark.parametrize("mem_mb", [-5, 0, 1, 300_000, 2**80])
@pytest.mark.parametrize("is_by_hand", [True, False])
def test_no_bucket_decides_how_much_memory_a_job_asks_for(
    desk: Desk, mem_mb: int, *, is_by_hand: bool
) -> None:
    run_dir = desk.mirrored(100)
    at = desk.clock.now()
    forge(desk, run_dir, [*_sent(run_dir.path.name, 2, at, mem_mb=mem_mb), _ended(2, at)])
    purge(run_dir)
    desk.restore(run_dir, always_record=True)
    desk.clock.advance(60)
    assert desk.tick().sent == {}  # it is held
    if is_by_hand:
        desk.resume(run_dir)
    else:
        desk.say(run_dir.path, Released(at=desk.clock.now(), by="ada"))
        desk.look()
        assert desk.tick().sent
    *_, script = sorted(run_dir.path.glob("attempts/*/job.sbatch"))
    assert "--mem=" not in script.read_text()
    desk.tick()
    assert len(desk.alive()) == 1


def test_what_is_the_own_word_after_a_restore(desk: Desk) -> None:
    at = desk.clock.now()
    restored = Restored(at=at, by="ada", url="x", journal=True, after=1, site="s")
    told = [*_sent("x", 1, at), _bill(1, at)]
    own: list[JournalRecord] = [
        Submitted(at=at, attempt=2, job_id="5"),
        Submitted(at=at, attempt=3, job_id="5", how="restarted"),
        Standby(at=at, says=Submitted(at=at, attempt=4, job_id="6")),
        Submitted(at=at, attempt=4, job_id="6", how="standby"),
        Submitted(at=at, attempt=5, job_id="77", how="restarted"),
        Submitted(at=at, attempt=6, job_id="8", how="claimed"),
        _bill(1, at, "events"),
        _bill(3, at, "events"),
    ]
    assert RunHistory.of(told).attempt(1).is_own
    history = RunHistory.of([*told, restored, *own])
    assert [number for number in range(1, 8) if history.attempt(number).is_own] == [2, 3, 4]
    assert [each.attempt for each in history.own_bills] == [3]
    assert [each.attempt for each in history.plus(_bill(1, at)).own_bills] == [3, 1]
