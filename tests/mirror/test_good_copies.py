"""What the store has whole stays whole there, whatever becomes of the run directory."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import MirrorError
from hpcflow.mirror import upload as upload_module
from hpcflow.mirror.remote import Parts
from hpcflow.mirror.upload import PART_BYTES, Outgoing
from hpcflow.mirror.verify import verify_mirror
from hpcflow.storage.layout import RunDir
from tests.mirror.runs import FILES, Desk, checkpoint_names, desk_in, said, save


@pytest.fixture(params=["s3", "folder"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """A folder keeps no checksum with a file, so nobody knows there what need not be sent."""
    if request.param == "s3":
        return desk_in(tmp_path, request.getfixturevalue("bucket_url"))
    return desk_in(tmp_path, str(tmp_path / "store"))


def content(desk: Desk) -> dict[str, bytes]:
    """What the store has of the checkpoints."""
    remote = desk.remote  # opening it takes longer than all else
    return {name: remote.read(name) for name in remote.names() if "/checkpoints/" in name}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def stop_before_the_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """A pass that is killed before objects are made of their parts; how the store sees those."""
    parts = desk.remote.parts
    assert parts is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(parts), "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            desk.mirror()
    return parts


def require_there(desk: Desk, path: Path) -> None:
    """The store has the ``model.pt`` of the checkpoint at ``path``."""
    run_id = path.parent.parent.name
    name = f"{run_id}/checkpoints/{path.name}/model.pt"
    assert desk.remote.read(name) == (path / "model.pt").read_bytes()
    parts = desk.remote.parts
    assert parts is not None and parts.unfinished(run_id) == []


def test_parts_of_a_checkpoint_that_was_made_anew_are_not_gone_on_with(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    files = {"model.pt": 3 * PART_BYTES}
    path = save(run_dir, 400, files)
    stop_before_the_end(desk, monkeypatch)
    shutil.rmtree(path)
    path = save(run_dir, 400, files)
    assert desk.mirror().problems == {}
    require_there(desk, path)


@pytest.mark.parametrize("part_bytes", [0, 1, 1 << 60])
def test_parts_of_another_size_than_ours_are_not_gone_on_with(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    """What the file says may have been restored from a bucket in which anybody wrote."""
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    path = save(run_dir, 400, {"model.pt": PART_BYTES + 1})
    stop_before_the_end(desk, monkeypatch)
    said = run_dir.mirror.read_text()
    run_dir.mirror.write_text(said.replace(f": {PART_BYTES},", f": {part_bytes},"))
    assert f'"part_bytes": {part_bytes}' in run_dir.mirror.read_text()
    assert desk.mirror().problems == {}
    require_there(desk, path)


def test_a_part_that_was_read_wrong_before_is_sent_again(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may say something else the next time; the first mirror was killed before it saw."""
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    path = save(run_dir, 400, {"model.pt": 3 * PART_BYTES})
    right = (path / "model.pt").read_bytes()
    flip(path / "model.pt")
    with monkeypatch.context() as patch:
        patch.setattr(upload_module, "_compare", lambda *_: None)
        stop_before_the_end(desk, monkeypatch)
    (path / "model.pt").write_bytes(right)
    assert desk.mirror().problems == {}
    require_there(desk, path)


def test_the_half_of_one_that_was_removed_after_its_mirror_was_killed(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    path = save(run_dir, 400, {"model.pt": PART_BYTES + 1, "small": 10})
    parts = stop_before_the_end(desk, monkeypatch)
    assert parts.unfinished(run_dir.path.name)
    assert "checkpoints/000000400/small" in desk.there(run_dir)
    desk.mirror()  # it was whole here, so it is there
    run_dir.mirror.write_text(run_dir.mirror.read_text().rpartition('{"at"')[0])  # killed again
    shutil.rmtree(path)
    assert desk.mirror().problems == {}
    assert "checkpoints/000000400/small" in desk.there(run_dir)
    assert said(run_dir)[-1] == ("failed", 400)

    path = save(run_dir, 500, {"model.pt": PART_BYTES + 1, "small": 10})
    stop_before_the_end(desk, monkeypatch)
    shutil.rmtree(path)
    assert desk.mirror().problems == {}
    assert not any("000000500" in name for name in desk.there(run_dir))
    assert parts.unfinished(run_dir.path.name) == []
    assert said(run_dir)[-1] == ("failed", 500)


@pytest.mark.parametrize("refused", ["done", "abort", "unfinished"])
def test_a_store_that_does_not_let_parts_be_looked_at_or_thrown_away(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    path = save(run_dir, 400, {"model.pt": PART_BYTES + 1})
    parts = stop_before_the_end(desk, monkeypatch)
    parts.begin(f"{run_dir.path.name}/checkpoints/000000400/model.pt")  # of a try of long ago
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            assert refused != "abort" or [each[0] for each in said(run_dir)][-1] == "mirrored"
            raise MirrorError("these credentials may not do that")

        patch.setattr(type(parts), refused, refuse)
        assert desk.mirror().problems == {}
    assert said(run_dir)[-1] == ("mirrored", 400)
    name = f"{run_dir.path.name}/checkpoints/000000400/model.pt"
    assert desk.remote.read(name) == (path / "model.pt").read_bytes()


def test_an_answer_that_was_lost_after_all_was_done(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desk_in(tmp_path, bucket_url)
    path = save(desk.make(), 400, {"model.pt": PART_BYTES + 1})
    parts = desk.remote.parts
    assert parts is not None
    finish = type(parts).finish

    def ask_again(*args: Any) -> None:
        for _ in range(2):
            finish(*args)

    monkeypatch.setattr(type(parts), "finish", ask_again)
    assert desk.mirror().problems == {}
    require_there(desk, path)


CHECKPOINT = "000000400"
PURGED: dict[str, Callable[[RunDir], object]] = {
    "manifest": lambda run_dir: (run_dir.checkpoints / CHECKPOINT / "manifest.json").unlink(),
    "data": lambda run_dir: (run_dir.checkpoints / CHECKPOINT / "model.pt").unlink(),
    "mirror.jsonl": lambda run_dir: run_dir.mirror.unlink(),
    "journal": lambda run_dir: run_dir.journal.unlink(),
}


def test_a_purge_file_by_file_in_any_order(desk: Desk) -> None:
    orders = list(itertools.permutations(PURGED))
    runs = [desk.make(f"run{number}") for number in range(len(orders))]
    for run_dir in runs:
        run_dir.journal.write_text("{}\n")
        save(run_dir, 400)
    desk.mirror()
    before = content(desk)
    assert len(before) == len(runs) * len(checkpoint_names(400))
    for stage in range(len(PURGED)):
        for run_dir, order in zip(runs, orders, strict=True):
            PURGED[order[stage]](run_dir)
        desk.mirror()
        assert content(desk) == before
    for run_dir in runs:
        shutil.rmtree(run_dir.path)
    assert desk.mirror().problems == {}
    assert content(desk) == before


def test_a_purge_that_ends_while_it_is_sent_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    desk.mirror()
    before = content(desk)
    run_dir.mirror.unlink()
    name = next(each for each in before if each.endswith("model.pt"))
    desk.remote.put_bytes(before[name], name)  # without its checksum: it has to be sent again
    send = upload_module.Uploader._send

    def purge(self: object, out: Outgoing, *more: object) -> None:
        shutil.rmtree(path, ignore_errors=True)
        send(self, out, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(upload_module.Uploader, "_send", purge)
    desk.mirror()
    assert content(desk) == before


@pytest.mark.parametrize("spoil", [Path.unlink, flip])
def test_the_old_one_stays_while_the_new_one_is_not_whole(
    desk: Desk, spoil: Callable[[Path], None]
) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    desk.mirror()
    before = content(desk)
    shutil.rmtree(path)
    path = save(run_dir, 400, {**FILES, "another": 10})
    spoil(path / "model.pt")
    assert run_dir.path.name in desk.mirror().problems
    assert content(desk) == before


@pytest.mark.parametrize(
    "desk", ["s3"], indirect=True
)  # a folder is never found right: no checksum
def test_what_was_found_there_and_is_gone_at_the_end_is_sent_before_anybody_sees_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending the rest may take hours, and buckets have rules."""
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    folder = f"{run_dir.path.name}/checkpoints/000000400/"
    desk.remote.delete([f"{folder}manifest.json", f"{folder}model.pt"])
    verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=False)
    send = upload_module.Uploader.send

    def meanwhile(uploader: Any, outgoing: Any, **options: Any) -> None:
        send(uploader, outgoing, **options)
        desk.remote.delete([f"{folder}sub folder/optimizer ü.pt"])

    with monkeypatch.context() as patch:
        patch.setattr(upload_module.Uploader, "send", meanwhile)
        (problem,) = desk.mirror().problems.values()
    assert "optimizer ü.pt disappeared during the upload" in str(problem)
    assert not desk.remote.exists(f"{folder}manifest.json")
    assert desk.mirror().problems == {}
    assert set(checkpoint_names(400)) <= set(desk.there(run_dir))
