"""A store cannot make a record of the journal so long that no reader takes it."""

from __future__ import annotations

import json

import pytest

from hpcflow.clock import to_text
from hpcflow.model import journal as records
from hpcflow.model.journal import Restored
from hpcflow.retention.checkpoints import survey
from hpcflow.storage import journal
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_forged import _cancelled, foreign_job, forge, restore_and_cancel


def test_checkpoints_without_end_hide_no_restore(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that record hpcflow would believe the job ids that the store names."""
    monkeypatch.setattr(records, "MAX_LINE_BYTES", 15_000)
    run_dir = owner.mirrored(100)
    other = foreign_job(owner, "my other training")
    forge(owner, run_dir, _cancelled(other, owner))
    for step in range(900):
        name = f"checkpoints/{10**17 + step}/manifest.json"
        owner.remote.put_bytes(b"{}", f"{run_dir.path.name}/{name}")
    restore_and_cancel(owner, run_dir)
    assert other in owner.alive()
    assert [each for each in journal.read(run_dir) if isinstance(each, Restored)]


@pytest.mark.parametrize("key", ["site", "run_dir"])
def test_nor_do_texts_without_end(owner: Owner, other: Owner, key: str) -> None:
    run_dir = owner.mirrored(100, end=None)
    run_id = run_dir.path.name
    said = json.loads(owner.remote.read(f"{run_id}/run.json"))
    said[key] = f"/{'x' * (2 << 20)}"
    owner.remote.put_bytes(json.dumps(said).encode(), f"{run_id}/run.json")
    there = other.fetch(run_id, owner.remote)
    records = journal.read(there.run_dir)
    assert len(records) == len(there.run_dir.journal.read_bytes().splitlines())  # none is skipped
    assert [each.record for each in records][-3:] == ["ended", "held", "restored"]


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 19, "٣" * 9, "100", "1" * 9])
def test_an_impossible_model_path_hides_no_checkpoint(owner: Owner, digits: str) -> None:
    run_dir = owner.mirrored(100)
    name = f"{run_dir.path.name}/attempts/0001/events.jsonl"
    event = {
        "at": to_text(owner.clock.now()),
        "event": "finished",
        "train_step": 1,
        "model": f"checkpoints/{digits}",
    }
    line = json.dumps(event).encode() + b"\n"
    owner.remote.put_bytes(owner.remote.read(name) + line, name)
    purge(run_dir)
    owner.look()
    assert owner.restore(run_dir).held is None
    assert [each.train_step for each in survey(run_dir).found] == [100]
