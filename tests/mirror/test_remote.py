"""What every kind of store has to do for the mirror."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from unittest import mock

import pytest

from hpcflow.errors import InputError, MissingObjectError
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.mirror.stores import open_remote


def test_what_was_sent_can_be_read(remote: Remote) -> None:
    data = b"one two three"
    remote.put_bytes(data, "run-1/run.json", sha256=hashlib.sha256(data).hexdigest())
    assert remote.read("run-1/run.json") == data
    assert remote.read_range("run-1/run.json", 4, 7) == b"two"
    assert remote.read_range("run-1/run.json", 8, 1000) == b"three"
    assert remote.read_range("run-1/run.json", 1000, 2000) == b""
    entry = remote.stat("run-1/run.json")
    assert entry is not None and entry.size_bytes == len(data)
    # A folder keeps no checksum. S3 does, though some servers change the case of its name.
    keeps = hashlib.sha256(data).hexdigest() if remote.url.startswith("s3:") else None
    assert entry.sha256 == keeps


def test_an_object_is_replaced_as_a_whole(remote: Remote) -> None:
    remote.put_bytes(b"a longer first one", "journal.jsonl")
    before = remote.stat("journal.jsonl")
    remote.put_bytes(b"second", "journal.jsonl")
    after = remote.stat("journal.jsonl")
    assert remote.read("journal.jsonl") == b"second"
    assert before is not None and after is not None
    assert before.etag is None or before.etag != after.etag


def test_an_empty_object_is_one(remote: Remote) -> None:
    remote.put_bytes(b"", "empty")
    assert remote.exists("empty")
    assert remote.read("empty") == b""


def test_what_is_not_there(remote: Remote) -> None:
    assert not remote.exists("nothing")
    assert remote.stat("nothing") is None
    assert remote.names() == {}
    assert remote.folders() == []
    remote.delete(["nothing"])
    with pytest.raises(MissingObjectError, match="no such object"):
        remote.read("nothing")


def test_names_and_folders(remote: Remote) -> None:
    for name in ("run-1/run.json", "run-1/checkpoints/000000400/a.pt", "run-10/run.json", "x"):
        remote.put_bytes(name.encode(), name)
    assert list(remote.names("run-1/")) == ["run-1/checkpoints/000000400/a.pt", "run-1/run.json"]
    assert remote.names("run-1/")["run-1/run.json"].size_bytes == len("run-1/run.json")
    assert list(remote.names()) == [
        "run-1/checkpoints/000000400/a.pt",
        "run-1/run.json",
        "run-10/run.json",
        "x",
    ]
    assert remote.folders() == ["run-1", "run-10"]
    assert remote.folders("run-1/") == ["checkpoints"]


@pytest.mark.parametrize(
    "name",
    ["a file.pt", "größe.pt", "模型/层 1.pt", "100%+&=.pt", "a'b\"c.pt", "tab\there", "~x#y"],
)
def test_any_name_that_a_file_can_have(remote: Remote, name: str) -> None:
    full = f"run-1/artifacts/{name}"
    remote.put_bytes(b"1", full)
    assert list(remote.names("run-1/")) == [full]
    assert remote.read(full) == b"1"
    remote.delete([full])
    assert not remote.exists(full)


def test_many_are_deleted_at_once(remote: Remote) -> None:
    names = [f"run-1/{number}" for number in range(30)]
    for name in names:
        remote.put_bytes(b"", name)
    remote.delete(names[1:])
    assert list(remote.names()) == names[:1]


def test_a_stream_is_an_object_when_it_has_ended(remote: Remote) -> None:
    pieces = [secrets.token_bytes(1000) for _ in range(3)]
    remote.put_stream(iter(pieces), "run-1/stream")
    assert remote.read("run-1/stream") == b"".join(pieces)


def test_a_stream_that_breaks_leaves_nothing(remote: Remote) -> None:
    def pieces() -> object:
        yield b"half"
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        remote.put_stream(pieces(), "run-1/stream")  # type: ignore[arg-type]
    assert remote.names() == {}


@pytest.mark.parametrize("remote", ["s3"], indirect=True)
def test_parts(remote: Remote) -> None:
    parts = remote.parts
    assert parts is not None
    first, second = secrets.token_bytes(5 << 20), b"the rest"
    sha256 = hashlib.sha256(first + second).hexdigest()
    upload_id = parts.begin("big", sha256)
    sent = [parts.put("big", upload_id, 1, first)]
    assert not remote.exists("big")
    assert parts.done("big", upload_id) == {1: sent[0]}
    sent.append(parts.put("big", upload_id, 2, second))
    parts.finish("big", upload_id, reversed(sent))
    assert remote.read("big") == first + second
    assert remote.stat("big") == Entry(len(first + second), mock.ANY, sha256)
    assert parts.done("big", upload_id) is None


@pytest.mark.parametrize("remote", ["s3"], indirect=True)
def test_parts_that_are_thrown_away(remote: Remote) -> None:
    parts = remote.parts
    assert parts is not None
    upload_id = parts.begin("big")
    parts.put("big", upload_id, 1, b"1")
    parts.abort("big", upload_id)
    parts.abort("big", upload_id)
    assert parts.done("big", upload_id) is None
    assert not remote.exists("big")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("s3://user:secret@bucket/x", "credentials do not belong in a URL"),
        ("s3://", "not the URL of a store"),
        ("relative/folder", "not the URL of a store"),
        ("nosuch://bucket/x", "not a supported store"),
        ("gs://bucket/x", "install gcsfs"),
        ("s3://bucket/../other", "an object store has no"),
    ],
)
def test_urls_that_are_none(url: str, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong) as caught:
        open_remote(url)
    assert caught.value.next_action
    assert "secret" not in caught.value.message


def test_what_a_folder_has_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror in a folder says `mirrored` after it: no crash may take it back."""
    remote, synced = open_remote(str(tmp_path / "store")), []
    remote.make_root()
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    for name in ("run/checkpoints/model.pt", "run/run.json"):
        synced.clear()
        remote.put_bytes(b"bytes", name)
        path = tmp_path / "store" / name
        _assert_synced_unseen(path, synced)
    synced.clear()
    remote.put_stream(iter([b"a", b"b"]), "run/new folder/large")
    _assert_synced_unseen(tmp_path / "store/run/new folder/large", synced)
    assert tmp_path / "store/run" in synced


def _assert_synced_unseen(path: Path, synced: list[Path]) -> None:
    """The file first, as long as nobody sees it, then its folder."""
    *_, file, folder = synced
    assert file.name.startswith(f"{path.name}.")
    assert folder == path.parent
