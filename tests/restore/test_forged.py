"""A journal that comes from a bucket ends no other job, and lets no held run go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hpcflow.history import RunHistory
from hpcflow.launch.standby import end_jobs
from hpcflow.model.ids import job_name
from hpcflow.model.journal import (
    CancelRequested,
    Held,
    Intended,
    JournalRecord,
    Observed,
    Released,
    Resumed,
    Standby,
    Submitted,
)
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo, SubmitRequest
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_foreign import change


def foreign_job(owner: Owner, name: str) -> str:
    """Another job of the same person, which Slurm has restarted once."""
    script = owner.folder / "other.sbatch"
    script.write_text("#!/bin/bash\n")
    job_id = owner.slurm.submit(SubmitRequest(script, owner.folder, name, None)).job_id
    owner.slurm.requeue(job_id)
    owner.clock.advance(300)
    assert job_id in owner.alive()
    return job_id


def forge(
    owner: Owner,
    run_dir: RunDir,
    records: Sequence[JournalRecord],
    claim: str = "",
    *,
    has_record: bool = False,
) -> None:
    """Somebody writes more into the bucket's journal.

    Args:
        has_record: whether the home still has the record of the run.
    """
    if not has_record:
        owner.lose_record(run_dir)
    name = f"{run_dir.path.name}/journal.jsonl"
    lines = owner.remote.read(name) + "".join(each.to_line() for each in records).encode()
    owner.remote.put_bytes(lines, name)
    if claim:
        owner.remote.put_bytes(f"{claim}\n".encode(), f"{run_dir.path.name}/attempts/0002/claim")


def _submitted(job_id: str, owner: Owner) -> list[JournalRecord]:
    now = owner.clock.now()
    job = next(each for each in owner.slurm.queue() if each.job_id == job_id)
    intent = Intended(at=now, attempt=2, job_name=job.job_name, scheduler="slurm")
    return [
        intent,
        Submitted(at=now, attempt=2, job_id=job_id),
        Observed(at=now, attempt=2, job_id=job_id, state=AttemptState.RUNNING, raw_state="RUNNING",
                 submitted_at=job.submitted_at),
    ]  # fmt: skip


def _own_name(job_id: str, owner: Owner) -> list[JournalRecord]:
    intent, *others = _submitted(job_id, owner)
    return [intent.model_copy(update={"job_name": job_name("", 2)}), *others]


def _cancelled(job_id: str, owner: Owner) -> list[JournalRecord]:
    request = CancelRequested(at=owner.clock.now(), by="ada")
    return [*_submitted(job_id, owner), request]


def _open(job_id: str, owner: Owner) -> list[JournalRecord]:
    request = CancelRequested(at=owner.clock.now(), by="ada")
    return [_submitted(job_id, owner)[0], request]


def _standby(job_id: str, owner: Owner) -> list[JournalRecord]:
    says = [each for each in _submitted(job_id, owner) if isinstance(each, (Intended, Submitted))]
    return [Standby(at=each.at, says=each) for each in says]


def _named(record: JournalRecord, run_id: str) -> JournalRecord:
    if isinstance(record, Intended) and record.job_name == job_name("", 2):
        return record.model_copy(update={"job_name": job_name(run_id, 2)})
    return record


@pytest.mark.parametrize("is_claimed", [False, True])
@pytest.mark.parametrize("name", ["my other training", "other-20260101-abcdefgh:3"])
@pytest.mark.parametrize("forged", [_submitted, _own_name, _cancelled, _open, _standby])
def test_no_journal_from_a_bucket_ends_another_job(
    owner: Owner,
    forged: Callable[[str, Owner], list[JournalRecord]],
    name: str,
    is_claimed: bool,
) -> None:
    run_dir = owner.mirrored(100)
    other = foreign_job(owner, name)
    records = [_named(each, run_dir.path.name) for each in forged(other, owner)]
    forge(owner, run_dir, records, claim=other if is_claimed else "")
    restore_and_cancel(owner, run_dir)
    assert other in owner.alive()


def restore_and_cancel(owner: Owner, run_dir: RunDir) -> None:
    """A purge, a restore, some rounds of the daemon, and the cancel of a person."""
    purge(run_dir)
    owner.restore(run_dir)
    for _ in range(3):
        owner.tick()
        owner.clock.advance(600)
    owner.cancel(run_dir)
    owner.tick()


def test_a_renamed_job_of_a_run_that_was_not_restored_is_ended(owner: Owner) -> None:
    run_dir = owner.trained(100, end=None)
    (job_id,) = owner.alive()
    owner.slurm.rename(job_id, "mine")
    assert owner.cancel(run_dir) == job_id


def test_a_renamed_job_that_was_sent_after_the_restore_is_ended(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.restore(run_dir)
    job_id = owner.resume(run_dir).job_id
    owner.slurm.rename(job_id, "mine")
    assert owner.cancel(run_dir) == job_id


@pytest.mark.parametrize("record", [Resumed, Released])
@pytest.mark.parametrize("how", [{}, {"which": 100}, {"which": "all"}])
def test_no_bucket_lets_go_on_what_is_held(
    owner: Owner, record: type[Resumed | Released], how: dict[str, Any]
) -> None:
    """The run is held, for its run.json is unknown; it is mirrored, and restored once more."""
    run_dir = owner.mirrored(100)
    change(owner, run_dir, lambda said: said["spec"].update(command=["sh", "-c", "evil"]))
    purge(run_dir)
    owner.lose_record(run_dir)
    assert owner.restore(run_dir).is_unknown
    owner.mirror(run_dir)
    at = owner.clock.now() + timedelta(days=3650)
    forge(owner, run_dir, [record(at=at, by="ada")])
    assert owner.restore(run_dir, **how).is_unknown
    for _ in range(3):
        assert owner.tick().sent == {}
        owner.clock.advance(3600)
    assert owner.alive() == []


@pytest.mark.parametrize("stopped", [CancelRequested, Held])
def test_no_bucket_lets_go_on_what_a_person_stopped(
    owner: Owner, stopped: type[CancelRequested | Held]
) -> None:
    """What it executes is known; whether it shall, the ledger knows."""
    run_dir = owner.mirrored(100)
    owner.say(run_dir.path, stopped(at=owner.clock.now(), by="ada"))
    owner.look()
    owner.mirror(run_dir)
    forge(owner, run_dir, [Resumed(at=owner.clock.now() + timedelta(days=3650), by="ada")])
    purge(run_dir)
    owner.restore(run_dir)
    for _ in range(3):
        assert owner.tick().sent == {}
        owner.clock.advance(3600)
    assert owner.alive() == []


def test_what_a_person_let_go_on_goes_on(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    owner.clock.advance(1)
    owner.say(run_dir.path, Released(at=owner.clock.now(), by="ada"))
    owner.look()
    owner.mirror(run_dir)
    purge(run_dir)
    owner.restore(run_dir)
    records = journal.read(run_dir)
    assert not RunHistory.of(records).is_held
    assert not RunHistory.of(records).is_cancelled


def test_a_run_that_its_user_resumed_is_approved(owner: Owner) -> None:
    """From then on its run.json is that of the home, as if it had been made here."""
    run_dir = owner.mirrored(100)
    owner.lose_record(run_dir)
    assert owner.restore(run_dir).is_unknown
    job_id = owner.resume(run_dir).job_id or ""
    owner.end(job_id, "PREEMPTED")
    owner.look()
    assert owner.mirror_pass(run_dir).problems == {}
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert (outcome.is_unknown, outcome.held) == (False, None)
    owner.clock.advance(600)
    assert list(owner.tick().sent) == [run_dir.path.name]


def test_why_it_is_held_is_told(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    run_dir.run_json.unlink()
    purge(run_dir)
    owner.restore(run_dir)
    held = [each for each in journal.read(run_dir) if isinstance(each, Held)][-1]
    assert held.why is not None
    assert "store" in held.why
    assert json.loads(held.to_line())["why"] == held.why
    assert owner.restore(run_dir).is_unknown  # so whoever says it again sees what it would execute


def test_the_id_of_a_whole_array_is_not_unseen(owner: Owner) -> None:
    foreign = foreign_job(owner, "array")
    job = next(each for each in owner.slurm.queue() if each.job_id == foreign)
    shown = [replace(job, job_id="777_3"), replace(job, job_id="778+0")]
    cancelled: list[str] = []

    class Slurm(FakeScheduler):
        def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:  # noqa: ARG002
            return shown

        def cancel(self, job_ids: Sequence[str]) -> None:
            cancelled.extend(job_ids)

    standbys = {"777": ("x", 1), "777_[0-9]": ("x", 2), "778": ("x", 3)}
    end_jobs(standbys, [], Slurm(owner.clock))
    assert cancelled == []
