"""A plain folder as a store, to which other users can write."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import MirrorError
from hpcflow.mirror.folder_remote import FolderRemote
from hpcflow.mirror.remote import Options, Remote
from hpcflow.mirror.stores import open_remote
from tests.hostile import KINDS, bounded, put
from tests.ledger import lines as say
from tests.mirror.runs import Desk, desk_in, save
from tests.projection.files import grow

NAME: Final = "run-1/artifacts/model.pt"
PRIVATE: Final = b"private"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir(mode=0o755)
    return path


#: Keeps all others from opening a file for as long as the kernel allows, 45 s.
LEASE: Final = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()
"""


def test_a_file_with_a_lease_is_not_waited_for(store: Path) -> None:
    (store / NAME).parent.mkdir(parents=True)
    (store / NAME).write_bytes(b"x")
    command = [sys.executable, "-c", LEASE, str(store / NAME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(MirrorError) as caught:
            FolderRemote(str(store), shared=False, clock=SystemClock(), patience_s=60).read(NAME)
        holder.communicate()
    assert not caught.value.retryable


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no link in the store may lead to, laid out as the store is."""
    path = tmp_path / "outside"
    file = path / NAME
    file.parent.mkdir(parents=True)
    file.write_bytes(PRIVATE)
    return path


def _link(level: int) -> Callable[[Path, Path], None]:
    """A link in place of the so many-th part of the name."""

    def put(store: Path, outside: Path) -> None:
        part = Path(*NAME.split("/")[: level + 1])
        (store / part).parent.mkdir(parents=True, exist_ok=True)
        (store / part).symlink_to(outside / part)

    return put


def _relative_link(store: Path, outside: Path) -> None:
    (store / NAME).parent.mkdir(parents=True)
    (store / NAME).symlink_to(Path("../../..") / outside.name / NAME)


#: What is no regular file; files that are damaged are for whoever reads them.
NO_FILES: Final = {"pipe", "socket", "folder", "device", "link to itself", "link to a pipe"} | {
    "link to a device that never ends"
}


def _of_kind(kind: str) -> Callable[[Path, Path], None]:
    return lambda store, _: put(kind, store / NAME)


ATTACKS: Final = {
    "run is a link": _link(0),
    "folder is a link": _link(1),
    "file is a link": _link(2),
    "relative link": _relative_link,
    **{kind: _of_kind(kind) for kind in KINDS if kind in NO_FILES},
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_no_file_of_ours_is_not_read(store: Path, outside: Path, attack: str) -> None:
    ATTACKS[attack](store, outside)
    remote = open_remote(str(store), patience_s=5)

    with bounded():
        for read in (remote.read, lambda name: remote.read_range(name, 0, 4)):
            with pytest.raises(MirrorError, match=r"link|regular"):
                read(NAME)
        try:
            assert NAME not in remote.names()
            assert NAME not in remote.names("run-1/")
            assert remote.stat(NAME) is None
        except MirrorError as error:
            assert "link" in error.message


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_written_or_deleted_elsewhere(store: Path, outside: Path, attack: str) -> None:
    ATTACKS[attack](store, outside)
    remote = open_remote(str(store), patience_s=5)

    calls: list[Callable[[], object]] = [
        lambda: remote.put_bytes(b"new", NAME),
        lambda: remote.put_stream(iter([b"new"]), NAME),
        lambda: remote.delete([NAME]),
    ]
    with bounded():
        for do in calls:
            try:
                do()
            except MirrorError as error:  # noqa: PERF203 - either is right
                assert error.next_action
    assert (outside / NAME).read_bytes() == PRIVATE
    assert [path.name for path in outside.rglob("*") if path.is_file()] == ["model.pt"]


def test_what_is_left_out_is_known(store: Path, outside: Path) -> None:
    _link(2)(store, outside)
    os.mkfifo(store / "run-1" / "journal.jsonl")
    (store / "run-1" / "run.json").write_bytes(b"{}")
    remote = open_remote(str(store))
    assert remote.names("run-1/").keys() == {"run-1/run.json"}
    assert remote.left_out == {NAME, "run-1/journal.jsonl"}


@pytest.mark.parametrize("name", ["../x", "run-1/../../x", "/x", "run-1//x", "run-1/.", "", ".."])
def test_no_name_leads_out(store: Path, name: str) -> None:
    remote = open_remote(str(store), patience_s=0)
    calls: list[Callable[[], object]] = [
        lambda: remote.read(name),
        lambda: remote.stat(name),
        lambda: remote.put_bytes(b"x", name),
        lambda: remote.delete([name]),
    ]
    for call in calls:
        with pytest.raises(MirrorError, match="leads out of the store"):
            call()
    assert not (store.parent / "x").exists()


def test_folders_in_folders_without_end_end(store: Path) -> None:
    remote = open_remote(str(store))
    descriptor = os.open(store, os.O_RDONLY)
    try:
        for _ in range(300):
            os.mkdir("d", dir_fd=descriptor)
            below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    finally:
        os.close(descriptor)
    assert remote.names() == {}
    assert len(remote.left_out) == 1


def test_a_huge_file_is_not_read_at_once(store: Path) -> None:
    path = store / "run-1" / "run.json"
    path.parent.mkdir()
    path.touch()
    os.truncate(path, 1 << 40)
    remote = open_remote(str(store))
    with pytest.raises(MirrorError, match="too large"):
        remote.read("run-1/run.json")
    assert remote.read_range("run-1/run.json", (1 << 40) - 2, 1 << 41) == b"\0\0"


def _modes(folder: Path) -> set[tuple[str, int]]:
    return {
        ("d" if path.is_dir() else "f", stat.S_IMODE(path.stat().st_mode))
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
@pytest.mark.parametrize("shared", [False, True])
def test_what_is_put_there_is_private_unless_the_site_says_otherwise(
    store: Path, umask: int, shared: bool
) -> None:
    remote = open_remote(str(store), Options(shared=shared))
    (store / "run-1").mkdir(mode=0o755)  # as an older hpcflow has made it
    (store / "run-1").chmod(0o755)
    before = os.umask(umask)
    try:
        remote.put_bytes(b"x", NAME)
        remote.put_stream(iter([b"x"]), "run-1/checkpoints/1/model.pt")
        new = open_remote(str(store / "new"), Options(shared=shared))
        new.make_root()
    finally:
        os.umask(before)
    assert _modes(store) == (
        {("d", 0o750), ("f", 0o640)} if shared else {("d", 0o700), ("f", 0o600)}
    )


@pytest.mark.parametrize("name", ["run-1", "run-1/artifacts"])
def test_another_private_folder_in_the_place_of_a_runs_stays_private(
    store: Path, name: str
) -> None:
    """Who can write to the store renames it; its files are private only because the folder is."""
    (store / "run-1").mkdir(mode=0o700)
    (store / name).mkdir(mode=0o700, exist_ok=True)
    (store / name / "thesis.txt").write_bytes(PRIVATE)
    remote = open_remote(str(store), Options(shared=True))
    remote.put_bytes(b"x", NAME)
    assert stat.S_IMODE((store / name).stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["new", f"new/{NAME}"])
def test_nor_is_one_opened_that_is_swapped_for_a_new_folder(
    store: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, mkdir = store / "private", os.mkdir
    private.mkdir(mode=0o700)
    (private / "thesis.txt").write_bytes(PRIVATE)

    def mkdir_and_swap(path: str, *args: int, dir_fd: int | None = None, **more: int) -> None:
        mkdir(path, *args, dir_fd=dir_fd, **more)
        if private.exists():
            os.rmdir(path, dir_fd=dir_fd)
            os.rename(private, path, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir_and_swap)
    remote = open_remote(str(store / "new"), Options(shared=True), patience_s=0)
    with suppress(MirrorError):
        remote.make_root()
        if name != "new":
            remote.put_bytes(b"x", NAME)
    (thesis,) = store.rglob("thesis.txt")
    assert stat.S_IMODE(thesis.parent.stat().st_mode) == 0o700


def test_many_at_once_make_a_folder_once(store: Path) -> None:
    remote = open_remote(str(store), patience_s=0)
    for number in range(50):
        names = [f"run-{number}/checkpoints/400/{each}" for each in range(16)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(partial(remote.put_bytes, b"x"), names))
        assert len(remote.names(f"run-{number}/")) == 16


def test_a_name_as_long_as_can_be_gets_its_folder(store: Path) -> None:
    remote = open_remote(str(store), patience_s=0)
    name = f"run-1/{'ü' * 127}/{'a' * 255}/x"
    remote.put_bytes(b"x", name)
    assert remote.names("run-1/").keys() == {name}


def test_a_run_of_mode_0700_stays_private_in_its_mirror(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, str(tmp_path / "archive"))
    run_dir = desk.make()
    save(run_dir, 100)
    run_dir.artifacts.mkdir()
    (run_dir.artifacts / "notes.txt").write_text("mine")
    assert desk.mirror().problems == {}
    assert _modes(tmp_path / "archive") == {("d", 0o700), ("f", 0o600)}


def test_another_users_folder_in_the_way_is_said(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "run-1").mkdir(mode=0o777)
    remote = open_remote(str(store), patience_s=0)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if (store / "run-1").stat().st_uid == 0:
        os.chown(store / "run-1", 4321, -1)
    with pytest.raises(MirrorError, match=r"run-1: it belongs to another user \(uid"):
        remote.put_bytes(b"x", "run-1/run.json")
    assert list((store / "run-1").iterdir()) == []


def test_a_race_with_who_swaps_a_folder_for_a_link_is_not_won(store: Path, outside: Path) -> None:
    """Five hundred tries: whatever is there at the moment, nothing goes through the link."""
    (outside / NAME).unlink()
    folder, stopped = store / "run-1", threading.Event()

    def swap() -> None:
        for number in itertools.count():
            if stopped.is_set():
                return
            with suppress(OSError):
                folder.rename(store / f"aside-{number}")
            with suppress(OSError):
                folder.symlink_to(outside / "run-1")
            with suppress(OSError):
                folder.unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    remote: Remote = FolderRemote(str(store), shared=False, clock=SystemClock(), patience_s=0)
    try:
        for _ in range(500):
            try:
                remote.put_bytes(b"x", NAME)
            except MirrorError:  # noqa: PERF203 - what was there was the link, or nothing
                continue
    finally:
        stopped.set()
        thread.join()
    assert [path for path in outside.rglob("*") if path.is_file()] == []


def test_links_and_pipes_of_a_run_directory_are_not_sent(tmp_path: Path) -> None:
    desk: Desk = desk_in(tmp_path, str(tmp_path / "archive"))
    run_dir, secret = desk.make(), tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_bytes(PRIVATE)
    artifacts = run_dir.artifacts
    artifacts.mkdir()
    (artifacts / "link").symlink_to(secret / "key")
    (artifacts / "folder").symlink_to(secret)
    os.mkfifo(artifacts / "pipe")
    (artifacts / "good").write_text("good")
    with bounded():
        desk.mirror()
    there = desk.there(run_dir)
    assert "artifacts/good" in there
    assert not [name for name in there if name.startswith(("artifacts/link", "artifacts/folder"))]
    assert "artifacts/pipe" not in there


@pytest.mark.parametrize("is_known", [True, False])
def test_a_journal_of_gigabytes_in_the_store_is_not_read_whole(
    tmp_path: Path, *, is_known: bool
) -> None:
    """hpcflow reads no more of it than the one here has."""
    desk = desk_in(tmp_path, str(tmp_path / "archive"))
    run_dir = desk.make()
    grow(run_dir.journal, say.intended(1))
    assert desk.mirror().problems == {}
    (there,) = (tmp_path / "archive").rglob("journal.jsonl")
    os.truncate(there, 5 << 30)
    grow(run_dir.journal, say.submitted(1))
    with bounded():
        assert desk.mirror().problems == {}
    assert there.read_bytes() == run_dir.journal.read_bytes(), "what was added there says nothing"
    there.write_bytes(run_dir.journal.read_bytes() + b"{}\n" * 1000)
    grow(run_dir.journal, say.resumed(2))
    if not is_known:
        run_dir.mirrored.unlink()
    (problem,) = desk.mirror().problems.values()
    assert "has more of the run's journal" in problem.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("moved", ["run-1/artifacts/keys.txt", "run-1/artifacts"])
def test_a_private_file_that_others_move_into_their_folder_is_not_read(
    store: Path, moved: str
) -> None:
    """It would become part of the run, and the next pass would publish it."""
    name = "run-1/artifacts/keys.txt"
    (store / name).parent.mkdir(parents=True)
    (store / name).write_bytes(b"private")
    remote = open_remote(str(store), patience_s=0)
    assert remote.read(name) == b"private"
    for each in (store / "run-1", store / "run-1/artifacts", store / name):
        is_moved = f"{each}/".startswith(f"{store / moved}/")
        os.chown(each, 1234 if is_moved else 4321, -1)
    with pytest.raises(MirrorError, match="belong to two users"):
        remote.read(name)
