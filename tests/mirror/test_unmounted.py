"""A plain folder may lie in a file system that is not mounted: then it is unknown, not empty."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from hpcflow.errors import MirrorError, MirrorUnavailable
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.stores import open_remote
from hpcflow.mirror.verify import verify_mirror, verify_small_files
from tests.mirror.runs import Desk, checkpoint_names, desk_in, said, save


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Where the file system of the archive is mounted."""
    path = tmp_path / "archive"
    path.mkdir()
    return path


@pytest.fixture
def desk(tmp_path: Path, archive: Path) -> Desk:
    return desk_in(tmp_path, str(archive / "ada"))


def unmount(archive: Path) -> Path:
    """What was below the mount point is gone from there; where it is kept meanwhile."""
    kept = archive.with_name("kept")
    archive.rename(kept)
    archive.mkdir()
    return kept


def mount(archive: Path) -> None:
    archive.rmdir()
    archive.with_name("kept").rename(archive)


#: What may be asked of a store, or done there.
CALLS: Final[Mapping[str, Callable[[Remote], object]]] = {
    "names": lambda remote: remote.names("run-1/"),
    "folders": lambda remote: remote.folders(),
    "stat": lambda remote: remote.stat("run-1/run.json"),
    "read": lambda remote: remote.read("run-1/run.json"),
    "delete": lambda remote: remote.delete(["run-1/run.json"]),
    "put_bytes": lambda remote: remote.put_bytes(b"1", "run-1/run.json"),
    "put_stream": lambda remote: remote.put_stream(iter([b"1"]), "run-1/run.json"),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_folder_that_is_not_there_is_not_an_empty_store(archive: Path, what: str) -> None:
    remote = open_remote(f"{archive}/ada", patience_s=30)
    with pytest.raises(MirrorUnavailable, match="ada does not exist; is it mounted") as caught:
        CALLS[what](remote)
    assert caught.value.retryable
    assert caught.value.next_action is not None
    assert f"mkdir -p {archive}/ada" in caught.value.next_action
    assert list(archive.iterdir()) == [], "nothing is put onto the disk below the mount point"


def test_a_file_in_its_place_is_said_as_such(archive: Path) -> None:
    (archive / "ada").write_text("not mine")
    remote = open_remote(f"{archive}/ada", patience_s=30)
    for what in ("names", "folders", "read", "put_bytes"):
        with pytest.raises(MirrorUnavailable, match="archive/ada is not a directory"):
            CALLS[what](remote)


def test_a_folder_that_goes_while_it_is_looked_at_was_not_empty(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archive / "ada").mkdir()
    remote = open_remote(f"{archive}/ada", patience_s=30)
    scan = os.scandir

    def scan_too_late(folder: int) -> Any:
        (archive / "ada").rmdir()
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scan_too_late)
    with pytest.raises(MirrorUnavailable, match="does not exist"):
        remote.names()


def test_a_folder_that_cannot_be_listed_is_not_empty(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the server behind it has gone, and its handle is stale."""
    (archive / "ada/run-1").mkdir(parents=True)
    remote = open_remote(f"{archive}/ada", patience_s=0)

    def stale(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(MirrorUnavailable, match="Stale file handle"):
        remote.names("run-1/")


def test_the_mirror_makes_the_folder_of_a_new_store(desk: Desk, archive: Path) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    assert desk.mirror().problems == {}
    assert [path.name for path in archive.iterdir()] == ["ada"]
    assert set(checkpoint_names(400)) < set(desk.there(run_dir))


def test_a_new_store_in_a_folder_that_is_not_there_is_not_made(desk: Desk, archive: Path) -> None:
    archive.rmdir()
    desk.make()
    (error,) = desk.mirror().problems.values()
    assert "does not exist; is it mounted?" in error.message
    assert not archive.exists()


@pytest.mark.parametrize("who", ["the run", "a new run", "a new run, the old one is purged"])
def test_a_store_that_was_used_before_is_not_made_anew(desk: Desk, archive: Path, who: str) -> None:
    run_dir = desk.make()
    save(run_dir, 300)
    desk.mirror()
    unmount(archive)
    if who == "the run":
        save(run_dir, 400)
    else:
        run_dir, gone = desk.make("new"), run_dir
        save(run_dir, 400)
        if "purged" in who:
            shutil.rmtree(gone.path)
    before = said(run_dir) if run_dir.mirror.exists() else []
    report = desk.mirror()
    (error,) = report.problems.values()
    assert list(report.problems) == [desk.url], "it is about the store, and said once"
    assert "does not exist; is it mounted?" in error.message
    assert list(archive.iterdir()) == []
    assert (said(run_dir) if run_dir.mirror.exists() else []) == before
    mount(archive)
    assert [done.train_step for done in desk.mirror().mirrored] == [400]


def test_what_an_older_hpcflow_has_sent_says_that_the_store_was_there(
    desk: Desk, archive: Path
) -> None:
    """It kept no list of folders; but the run's own records know. So do those of other runs."""
    old = desk.make("old")
    desk.mirror()
    shutil.rmtree(desk.home.mirror)
    unmount(archive)
    save(desk.make("new"), 400)
    assert "is it mounted?" in str(desk.mirror().problems[desk.url])
    assert list(archive.iterdir()) == []
    old.mirror_sent.unlink()  # now nobody knows, and it is as good as new
    assert desk.mirror().problems == {}


def test_who_cannot_say_whether_it_is_new_makes_nothing(desk: Desk, archive: Path) -> None:
    desk.make()
    (desk.home.mirror / "folders.jsonl").mkdir(parents=True)
    assert "is it mounted?" in str(desk.mirror().problems[desk.url])
    assert list(archive.iterdir()) == []


def test_nothing_is_found_to_be_lost_that_is_not_mounted(desk: Desk, archive: Path) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    before = run_dir.mirror.read_bytes()
    unmount(archive)
    with pytest.raises(MirrorError, match="is it mounted"):
        verify_mirror(desk.home, run_dir, clock=desk.clock, reads=False)
    with pytest.raises(MirrorError, match="is it mounted"):
        verify_small_files(run_dir, clock=desk.clock)
    assert run_dir.mirror.read_bytes() == before
    mount(archive)
    assert verify_small_files(run_dir, clock=desk.clock) == []
