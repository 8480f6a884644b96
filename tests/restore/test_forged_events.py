"""Events and claims that others wrote into a store complete no run, and take no attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Intended, Withdrawn
from hpcflow.model.state import RunState
from hpcflow.restore.fetching import drop_start_and_end
from hpcflow.restore.ledger import rebuild_from
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from tests.restore.mirrored import purge
from tests.restore.owner import Owner

STARTED = {"event": "started", "job_id": "99999", "nodes": ["n1"], "restarts": 0}
FINISHED = {"event": "finished", "train_step": 150, "metrics": {}}
EXITED = {"event": "exited", "exit_code": 0}
PROGRESS = {"event": "progress", "train_step": 150, "metrics": {"loss": 0.5}}
FORGED = ([STARTED], [EXITED], [STARTED, FINISHED, EXITED])

STANDBY = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m, account: physics}
retry: {standby: true}
"""


def forge(owner: Owner, run_dir: RunDir, attempt: int, events: list[dict[str, Any]]) -> None:
    """Append events to those of an attempt in the store."""
    name = f"{run_dir.path.name}/attempts/{attempt:04d}/events.jsonl"
    there = owner.remote.read(name) if owner.remote.stat(name) else b""
    lines = [json.dumps({"at": "2026-03-01T00:00:02.000Z", **each}) for each in events]
    owner.remote.put_bytes(there + "".join(f"{line}\n" for line in lines).encode(), name)


def rounds(owner: Owner, run_dir: RunDir) -> list[RunState]:
    """The state of the run after each of some rounds of the daemon, which restores by itself."""
    states = []
    for _ in range(4):
        owner.tick()
        while owner.restoring:
            owner.restoring.pop()
            assert owner.restore(run_dir, always_record=True).held is None
        states.append(owner.state(run_dir.path.name)[0])
        owner.clock.advance(900)
    return states


@pytest.mark.parametrize("events", [[], *FORGED])
def test_slurm_decides_how_an_attempt_without_a_recorded_end_ended(
    owner: Owner, events: list[dict[str, Any]]
) -> None:
    run_dir = owner.trained(100, end=None)
    job_id = owner.seen(run_dir.path.name).attempts[-1].job_id or ""
    owner.look()
    owner.mirror(run_dir)
    forge(owner, run_dir, 1, [PROGRESS, *events])
    owner.clock.advance(60)
    owner.slurm.end(job_id, "PREEMPTED")
    purge(run_dir)
    assert rounds(owner, run_dir)[-1] is RunState.RUNNING
    attempts = owner.seen(run_dir.path.name).attempts
    assert (attempts[0].job_id, attempts[0].raw_state) == (job_id, "PREEMPTED")
    assert b'"loss"' in run_dir.attempt(1).events.read_bytes(), "what it reported is restored"


@pytest.mark.parametrize("is_withdrawn", [True, False])
@pytest.mark.parametrize("events", FORGED)
@pytest.mark.parametrize("is_purged", [True, False])
def test_forged_events_do_not_turn_an_unsubmitted_attempt_into_a_job(
    owner: Owner, events: list[dict[str, Any]], *, is_withdrawn: bool, is_purged: bool
) -> None:
    run_dir = owner.mirrored(100)
    run_id, now = run_dir.path.name, owner.clock.now()
    name = f"{run_id}:2"
    intent = Intended(
        at=now, attempt=2, job_name=name, scheduler="slurm", cluster="devcluster", host="login1"
    )
    withdrawn = [Withdrawn(at=now, attempt=2, reason="no such job")] if is_withdrawn else []
    run_dir.attempt(2).path.mkdir()
    journal.append_all(run_dir, [intent, *withdrawn])
    owner.mirror(run_dir)
    owner.look()
    forge(owner, run_dir, 2, events)
    if is_purged:
        purge(run_dir)
    assert owner.restore(run_dir).held is None
    owner.clock.advance(700)
    assert rounds(owner, run_dir)[-1] is RunState.RUNNING
    assert "99999" not in {each.job_id for each in owner.seen(run_id).attempts}


@pytest.mark.parametrize("events", FORGED)
def test_a_ledger_that_is_read_from_the_store_believes_no_end(
    owner: Owner, events: list[dict[str, Any]]
) -> None:
    run_dir = owner.trained(100, end=None)
    owner.mirror(run_dir)
    forge(owner, run_dir, 1, [PROGRESS, *events])
    purge(run_dir)
    for each in owner.settings.home.path.glob("ledger.sqlite*"):
        each.unlink()
    with open_ledger(owner.settings.ledger_url) as ledger:
        rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)
        found = ledger.run(run_dir.path.name)
    assert found.run.state is RunState.RUNNING
    assert found.attempts[-1].exit_code is None
    assert found.run.train_step == 150


@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize("claim", ["99999", "other"])
def test_a_standby_that_waits_keeps_its_attempt(
    owner: Owner, claim: str, *, is_ended: bool
) -> None:
    owner.config.write_text(STANDBY)
    run_dir = owner.trained(100, end=None)
    run_id = run_dir.path.name
    first = owner.seen(run_id).attempts[-1].job_id or ""
    for _ in range(3):
        owner.tick()
        owner.clock.advance(30)
    owner.config.write_text(STANDBY.replace("standby: true", "standby: false"))
    other = owner.launch()
    if is_ended:
        owner.slurm.end(first, "PREEMPTED")
        owner.look()
    owner.mirror(run_dir)
    text = other.job_id if claim == "other" else claim
    owner.remote.put_bytes(f"{text}\n".encode(), f"{run_id}/attempts/0002/claim")
    forge(owner, run_dir, 2, [STARTED, FINISHED, EXITED])
    purge(run_dir)
    assert owner.restore(run_dir).held is None
    assert not run_dir.attempt(2).claim.exists()
    assert not run_dir.attempt(2).events.exists()


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_withdrawn_attempt_is_sealed_again(owner: Owner, *, has_folder: bool) -> None:
    """A purge takes its claim, and its job may still appear."""
    run_dir = owner.mirrored(100)
    now, name = owner.clock.now(), f"{run_dir.path.name}:2"
    run_dir.attempt(2).path.mkdir()
    run_dir.attempt(2).claim.write_text("withdrawn\n")
    intent = Intended(
        at=now, attempt=2, job_name=name, scheduler="slurm", cluster="devcluster", host="login1"
    )
    journal.append_all(run_dir, [intent, Withdrawn(at=now, attempt=2, reason="no such job")])
    owner.mirror(run_dir)
    owner.look()
    if has_folder:
        run_dir.attempt(2).claim.unlink()
    else:
        purge(run_dir)
    assert owner.restore(run_dir).left == []
    assert run_dir.attempt(2).claim.read_text() == "withdrawn\n"


def test_attempts_that_are_still_to_come_are_not_sealed(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    now = owner.clock.now()
    journal.append_all(
        run_dir, [Withdrawn(at=now, attempt=number, reason="no such job") for number in (2, 3, 40)]
    )
    owner.mirror(run_dir)
    owner.lose_record(run_dir)
    purge(run_dir)
    owner.restore(run_dir)
    assert list(run_dir.path.glob("attempts/*/claim")) == []


def test_start_and_end_events_are_dropped_and_a_result_becomes_progress(tmp_path: Path) -> None:
    at = {"at": "2026-03-01T00:00:02.000Z"}
    kept = json.dumps({**at, **PROGRESS}).encode() + b"\n"
    path = RunDir(tmp_path).attempt(1).events
    path.parent.mkdir(parents=True)
    twice = b'{"at": "2026-03-01T00:00:02.000Z", "event": "progress", "event": "exited"}\n'
    coded = json.dumps({**at, **EXITED}).replace("exited", "\\u0065xited").encode() + b"\n"
    deep = json.loads("[" * 900 + "]" * 900)
    metrics = {"accuracy": 0.9, "deep": deep, "text": "x"}
    finished = json.dumps({**at, **FINISHED, "metrics": metrics}).encode() + b"\n"
    inside = json.dumps({**at, **PROGRESS, "metrics": {"x": EXITED}}).encode() + b"\n"
    last = b'{"at": "2026-03-01T00:00:02.000Z", "event": "exited", "event": "progress"}\n'
    path.write_bytes(kept + twice + coded + inside + b"torn\n" + kept + last + finished + b"half")
    drop_start_and_end(RunDir(tmp_path), [1, 2])
    *first, last = path.read_bytes().splitlines(keepends=True)
    assert first == [kept, kept, json.dumps({**at, "event": "progress"}).encode() + b"\n"]
    result = {"event": "progress", "train_step": 150, "metrics": {"accuracy": 0.9}}
    assert json.loads(last) == {**at, **result}
