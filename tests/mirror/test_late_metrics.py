"""A checkpoint that gets metrics after it was mirrored: the store has them, too, and no gap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror.layout import MANIFEST, checkpoint_folder
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.status import status_of
from hpcflow.mirror.verify import verify_mirror
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.job import Job
from hpcflow.runtime.metrics import add_metrics
from hpcflow.runtime.mirrored import mirrored
from hpcflow.storage.layout import RunDir
from tests.mirror.runs import Desk, desk_in, said, save


@pytest.fixture(params=["s3", "folder"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    if request.param == "s3":
        return desk_in(tmp_path, request.getfixturevalue("bucket_url"))
    return desk_in(tmp_path, str(tmp_path / "store"))


def log(run_dir: RunDir, train_step: int, **metrics: float) -> None:
    """What the job logs after the checkpoint of ``train_step`` was made."""
    job = Job(run_dir.path.name, 1, run_dir.path, checkpoint_dir=run_dir.checkpoints)
    add_metrics(job, EventLog(None), train_step, metrics)


def in_store(desk: Desk, run_dir: RunDir, train_step: int) -> dict[str, float]:
    data = desk.remote.read(checkpoint_folder(run_dir.path.name, train_step) + MANIFEST)
    metrics: dict[str, float] = json.loads(data)["metrics"]
    return metrics


def test_only_its_manifest_is_sent_again_and_is_never_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    log(run_dir, 400, val_loss=0.25)
    assert mirrored(run_dir.path, desk.url) == set(), "what the store has is not what is here"

    sent: list[str] = []
    put, kind = type(desk.remote).put_bytes, type(desk.remote)

    def put_and_note(remote: Remote, data: bytes, name: str, **more: str | None) -> str | None:
        sent.append(name)
        return put(remote, data, name, **more)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "put_bytes", put_and_note)
        patch.setattr(kind, "delete", lambda _, names: pytest.fail(str(names)) if names else None)
        report = desk.mirror()
    folder = checkpoint_folder(run_dir.path.name, 400)
    assert [name for name in sent if name.startswith(folder)] == [folder + MANIFEST]
    assert [done.train_step for done in report.mirrored] == [400]
    assert in_store(desk, run_dir, 400) == {"val_loss": 0.25}
    assert said(run_dir) == [("began", 400), ("mirrored", 400)] * 2
    assert mirrored(run_dir.path, desk.url) == {400}
    status = status_of(run_dir, SystemClock().now(), {})
    assert status is not None and (status.mirrored, status.problem) == (400, None)
    clock = SystemClock()
    assert [each.why for each in verify_mirror(desk.home, run_dir, clock=clock, reads=True)] == [
        None
    ]
    assert desk.mirror().mirrored == []


def test_what_the_store_lost_meanwhile_is_sent_again_with_it(desk: Desk) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    desk.mirror()
    name = checkpoint_folder(run_dir.path.name, 400) + "model.pt"
    desk.remote.delete([name])
    log(run_dir, 400, val_loss=0.25)
    desk.mirror()
    assert desk.remote.read(name) == (path / "model.pt").read_bytes()
    assert in_store(desk, run_dir, 400) == {"val_loss": 0.25}


def test_metrics_that_come_while_it_is_being_sent_follow_in_the_next_pass(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    put, kind = type(desk.remote).put_bytes, type(desk.remote)

    def log_and_put(remote: Remote, data: bytes, name: str, **more: str | None) -> str | None:
        if name.endswith("model.pt"):
            log(run_dir, 400, val_loss=0.25)
        return put(remote, data, name, **more)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "put_bytes", log_and_put)
        desk.mirror()
    desk.mirror()
    assert in_store(desk, run_dir, 400) == {"val_loss": 0.25}
