"""A checkpoint that is not what was written is skipped for the one before, and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hpcflow.errors import MirrorError
from hpcflow.mirror.folder_remote import FolderRemote
from hpcflow.mirror.remote import Remote
from hpcflow.restore.fetching import ALL
from hpcflow.restore.local import newest_whole
from hpcflow.runtime.manifest import manifest_bytes
from tests.restore.mirrored import purge
from tests.restore.owner import Owner

Harm = Callable[[Remote, str], object]


def _bytes(name: str, data: bytes) -> Harm:
    return lambda remote, folder: remote.put_bytes(data, folder + name)


def _flip(name: str) -> Harm:
    def flip(remote: Remote, folder: str) -> None:
        data = bytearray(remote.read(folder + name))
        data[len(data) // 2] ^= 1
        remote.put_bytes(bytes(data), folder + name)

    return flip


def _gone(name: str) -> Harm:
    return lambda remote, folder: remote.delete([folder + name])


def _manifest(**changes: Any) -> Harm:
    def change(remote: Remote, folder: str) -> None:
        said = json.loads(remote.read(f"{folder}manifest.json"))
        remote.put_bytes(manifest_bytes({**said, **changes}), f"{folder}manifest.json")

    return change


def _file(name: str, entry: Any) -> Harm:
    def change(remote: Remote, folder: str) -> None:
        said = json.loads(remote.read(f"{folder}manifest.json"))
        said["files"][name] = entry
        remote.put_bytes(manifest_bytes(said), f"{folder}manifest.json")

    return change


SHA = "0" * 64
HARMS: dict[str, Harm] = {
    "a bit of a file": _flip("model.pt"),
    "a bit of a file in a folder": _flip("rank0/optim.pt"),
    "a file is gone": _gone("model.pt"),
    "a file is shorter": _bytes("model.pt", b"weights"),
    "a file is longer": _bytes("model.pt", b"weights" * 1001),
    "the manifest is cut": _bytes("manifest.json", b'{"format": 1, "train_step"'),
    "the manifest is empty": _bytes("manifest.json", b""),
    "the manifest is a list": _bytes("manifest.json", b"[]"),
    "the manifest is nested without end": _bytes("manifest.json", b"[" * 100_000),
    "the manifest is a pickle": _bytes("manifest.json", b"\x80\x04N."),
    "a bit of the manifest": _flip("manifest.json"),
    "the manifest is from the future": _manifest(format=2),
    "the manifest is of another train step": _manifest(train_step=100),
    "the manifest is of another run": _manifest(run_id="other-20260301-abcdefgh"),
    "the manifest has no files": _manifest(files=None),
    "a size is no number": _file("model.pt", {"size_bytes": "7000", "sha256": SHA}),
    "a size is negative": _file("model.pt", {"size_bytes": -1, "sha256": SHA}),
    "a checksum is missing": _file("model.pt", {"size_bytes": 7000}),
    "a file is a text": _file("model.pt", "yes"),
    "it leads out": _file("../../../../escaped", {"size_bytes": 1, "sha256": SHA}),
    "it is absolute": _file("/etc/escaped", {"size_bytes": 1, "sha256": SHA}),
    "it has an empty part": _file("a//b", {"size_bytes": 1, "sha256": SHA}),
    "it has a control character": _file("a\x1b[2J", {"size_bytes": 1, "sha256": SHA}),
    "it has a NUL": _file("a\0b", {"size_bytes": 1, "sha256": SHA}),
    "it is too long": _file("a" * 256, {"size_bytes": 1, "sha256": SHA}),
    "it is no text": _file("a\ud800", {"size_bytes": 1, "sha256": SHA}),
    "a file is a folder, too": _file("model.pt/x", {"size_bytes": 1, "sha256": SHA}),
    "it names the manifest": _file("manifest.json", {"size_bytes": 1, "sha256": SHA}),
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_damaged_is_skipped_for_the_one_before(owner: Owner, harm: str) -> None:
    run_dir = owner.mirrored(100, 200)
    HARMS[harm](owner.remote, f"{run_dir.path.name}/checkpoints/000000200/")
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert (outcome.checkpoints, list(outcome.skipped)) == ([100], [200])
    assert newest_whole(run_dir) == 100
    assert not (run_dir.checkpoints / "000000200").exists()
    assert not list(owner.folder.rglob("escaped"))
    assert not run_dir.restore.exists()


def test_of_one_that_is_deleted_meanwhile_nothing_is_kept(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.mirrored(100, 200)
    purge(run_dir)
    name = f"{run_dir.path.name}/checkpoints/000000200/rank0/optim.pt"
    read_range = FolderRemote.read_range

    def read(remote: FolderRemote, given: str, begin: int, end: int) -> bytes:
        if "000000200" in given:
            remote.delete([name])
        return read_range(remote, given, begin, end)

    monkeypatch.setattr(FolderRemote, "read_range", read)
    outcome = owner.restore(run_dir)
    assert (outcome.checkpoints, list(outcome.skipped)) == ([100], [200])
    assert not (run_dir.checkpoints / "000000200").exists()


def test_where_all_are_damaged_the_run_and_its_history_come_back(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    for step in (100, 200):
        folder = f"{run_dir.path.name}/checkpoints/{step:09d}/"
        _flip("model.pt")(owner.remote, folder)
    purge(run_dir)
    outcome = owner.restore(run_dir, which=ALL)
    assert (outcome.is_new, outcome.newest, list(outcome.skipped)) == (True, None, [200, 100])
    assert len(owner.seen(run_dir.path.name).attempts) == 1


def test_one_that_was_asked_for_is_not_replaced_by_another(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    _flip("model.pt")(owner.remote, f"{run_dir.path.name}/checkpoints/000000200/")
    purge(run_dir)
    with pytest.raises(MirrorError, match=r"train step 200 in .* is damaged: .*checksum differs"):
        owner.restore(run_dir, which=200)
    assert not run_dir.path.exists()


def test_one_without_a_manifest_was_never_complete(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    owner.remote.delete([f"{run_dir.path.name}/checkpoints/000000200/manifest.json"])
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert (outcome.checkpoints, outcome.skipped) == ([100], {})


@pytest.mark.parametrize(
    "said",
    [b"", b"[]", b"{}", b"\x80\x04N.", b'{"format": 99}', b"[" * 100_000],
    ids=["empty", "list", "object", "pickle", "future", "nested"],
)
def test_a_run_that_is_none_is_refused(owner: Owner, said: bytes) -> None:
    run_dir = owner.mirrored(100)
    owner.remote.put_bytes(said, f"{run_dir.path.name}/run.json")
    purge(run_dir)
    with pytest.raises(MirrorError, match=r"run\.json"):
        owner.restore(run_dir)
    assert not run_dir.path.exists()


def test_a_run_of_another_name_is_refused(owner: Owner) -> None:
    one, other = owner.mirrored(100), owner.mirrored(100)
    data = owner.remote.read(f"{other.path.name}/run.json")
    owner.remote.put_bytes(data, f"{one.path.name}/run.json")
    purge(one)
    with pytest.raises(MirrorError, match="is of another run"):
        owner.restore(one)


def test_what_was_hurt_on_the_way_alone_is_fetched_again(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.mirrored(100, 200)
    purge(run_dir)
    read_range, asked = FolderRemote.read_range, []

    def read(remote: FolderRemote, name: str, begin: int, end: int) -> bytes:
        data = read_range(remote, name, begin, end)
        asked.append(name.rpartition("/")[2])
        if asked[-1] == "model.pt" and asked.count("model.pt") == 1:
            return b"?" + data[1:]
        return data

    monkeypatch.setattr(FolderRemote, "read_range", read)
    outcome = owner.restore(run_dir)
    assert (outcome.checkpoints, outcome.skipped) == ([200], {})
    assert asked.count("model.pt") == 2
