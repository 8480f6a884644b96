"""Snapshots on scratch: shared by content, removed without runs, never more than what they name."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.errors import ScratchError
from hpcflow.model.run import code_place
from hpcflow.storage import code_snapshot
from hpcflow.storage.code_snapshot import (
    CodeFile,
    CodeTree,
    DamagedArchiveError,
    add_code,
    archive_name,
    is_whole,
    pack,
    read_archive,
    remove_unused,
    unpack,
)
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import create_run
from tests.storage.runs import make_run

TREE = CodeTree(
    files={
        "train.py": CodeFile(b"print(1)\n"),
        "run it.sh": CodeFile(b"", is_executable=True),
        "a/b/é.py": CodeFile(b"\0\xff"),
    },
    links={"data": "/data", "a/latest": "b"},
    is_private=False,
)
OTHER = CodeTree({"train.py": CodeFile(b"print(2)\n")}, {}, is_private=True)
A_WEEK_AND_MORE_S = 8 * 86400


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "hpcflow").mkdir(0o700)
    return tmp_path / "hpcflow"


def a_run(runs: Path, name: str, tree: CodeTree = TREE) -> Path:
    """The folder ``code`` of a run that has ``tree``."""
    folder = runs / name
    folder.mkdir()
    add_code(folder, runs, tree)
    return folder


def test_what_is_packed_is_unpacked(runs: Path) -> None:
    assert unpack(pack(TREE), is_private=False) == TREE
    folder = a_run(runs, "one")
    assert read_archive(folder, TREE.digest) == TREE
    assert read_archive(folder, OTHER.digest) is None
    place = code_place(runs, TREE.digest)
    assert is_whole(place, TREE.digest)
    assert (place / "files/a/latest").is_dir(), "the link leads to b"
    assert os.readlink(place / "files/data") == "/data"  # noqa: PTH115 - as it is written
    assert os.access(place / "files/run it.sh", os.X_OK)


def test_sha256sum_reads_the_index_and_its_checksum_is_the_digest(runs: Path) -> None:
    a_run(runs, "one")
    place = code_place(runs, TREE.digest)
    index = (place / "index").read_bytes()
    assert hashlib.sha256(index).hexdigest() == TREE.digest
    check = ["sha256sum", "--check", "--strict", "../index"]
    done = subprocess.run(check, cwd=place / "files", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(TREE.files)


@pytest.mark.parametrize(
    "other",
    [
        CodeTree({**TREE.files, "train.py": CodeFile(b"print(2)\n")}, TREE.links, is_private=False),
        CodeTree({**TREE.files, "new.py": CodeFile(b"")}, TREE.links, is_private=False),
        CodeTree({**TREE.files, "run it.sh": CodeFile(b"")}, TREE.links, is_private=False),
        CodeTree(TREE.files, {**TREE.links, "data": "/other"}, is_private=False),
        CodeTree(TREE.files, {}, is_private=False),
    ],
    ids=["bytes", "file", "mode", "link", "no link"],
)
def test_another_state_of_the_code_is_another_snapshot(other: CodeTree) -> None:
    assert other.digest != TREE.digest


def test_a_secret_is_no_part_of_the_code_and_the_archive_is_hidden_from_the_mirror() -> None:
    private = CodeTree(TREE.files, TREE.links, is_private=True)
    assert private.digest == TREE.digest
    assert archive_name(private) == f".{archive_name(TREE)}"


def test_a_snapshot_is_removed_a_week_after_its_last_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = a_run(runs, "first"), a_run(runs, "second")
    place, now_s = code_place(runs, TREE.digest), time.time()
    for folder in (first, second):
        monkeypatch.setattr(time, "time", lambda: now_s + A_WEEK_AND_MORE_S)
        remove_unused(place.parent)
        assert place.exists(), "a run refers to it"
        (folder / archive_name(TREE)).unlink()
    monkeypatch.setattr(time, "time", lambda: now_s)
    remove_unused(place.parent)
    assert place.exists(), "a run may be created at this moment"
    monkeypatch.setattr(time, "time", lambda: now_s + A_WEEK_AND_MORE_S)
    a_run(runs, "third", OTHER)  # looks
    assert not place.exists()
    assert code_place(runs, OTHER.digest).exists()


def test_a_file_system_without_hard_links_keeps_every_snapshot(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    folder = a_run(runs, "one")
    assert read_archive(folder, TREE.digest) == TREE
    place, now_s = code_place(runs, TREE.digest), time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + A_WEEK_AND_MORE_S)
    remove_unused(place.parent)
    assert is_whole(place, TREE.digest)


def test_a_snapshot_that_is_removed_while_a_run_is_created_is_made_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(runs, "old")
    place, link = code_place(runs, TREE.digest), os.link
    removed: list[Path] = []

    def just_removed(source: Path, target: Path) -> None:
        if not removed:
            removed.append(place.rename(place.with_name(".aside")))
        link(source, target)

    monkeypatch.setattr(os, "link", just_removed)
    folder = a_run(runs, "new")
    assert is_whole(place, TREE.digest)
    assert (folder / archive_name(TREE)).samefile(place / archive_name(TREE))


def test_of_two_that_make_the_same_snapshot_at_once_both_refer_to_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Path] = []

    def pack_while_another_is_faster(code: CodeTree) -> bytes:
        if not others:
            others.append(runs / "other")
            a_run(runs, "other")
        return pack(code)

    monkeypatch.setattr(code_snapshot, "pack", pack_while_another_is_faster)
    ours = a_run(runs, "ours")
    place = code_place(runs, TREE.digest)
    for folder in (ours, *others):
        assert (folder / archive_name(TREE)).samefile(place / archive_name(TREE))
    assert [each.name for each in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("step", ["write_new", "fsync_folder", "_link"])
def test_a_full_disk_leaves_no_half_of_a_snapshot(
    runs: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(code_snapshot, step, full)
    with pytest.raises(ScratchError, match="No space left on device"):
        create_run(make_run(runs.parent), Home(runs.parent / "home"), snapshot=TREE)
    assert list(runs.parent.iterdir()) == [runs]


def test_a_program_may_change_its_copies_of_the_snapshot(runs: Path, tmp_path: Path) -> None:
    """Whatever copies a file or folder copies its mode, and the next attempt copies it again."""
    a_run(runs, "one")
    files = code_place(runs, TREE.digest) / "files"
    copy = shutil.copytree(files, tmp_path / "copy", symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            is_executable = path.is_dir() or path.name == "run it.sh"
            assert path.stat().st_mode & 0o777 == (0o700 if is_executable else 0o600), path


@pytest.mark.parametrize("name", ["best.pt", "a/out/best.pt"])
def test_what_a_program_has_written_beside_its_files_is_not_removed(
    runs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = a_run(runs, "one")
    place, now_s = code_place(runs, TREE.digest), time.time()
    result = place / "files" / name
    result.parent.mkdir(exist_ok=True)
    result.write_text("weights")
    (folder / archive_name(TREE)).unlink()
    monkeypatch.setattr(time, "time", lambda: now_s + A_WEEK_AND_MORE_S)
    remove_unused(place.parent)
    assert result.exists()
    (place / "files/train.py").unlink()
    a_run(runs, "two")
    remove_unused(place.parent)
    assert is_whole(place, TREE.digest)
    assert [*place.parent.glob(f".*/files/{name}")], "it was damaged, and made again beside that"


def test_compiled_files_do_not_keep_a_snapshot(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(runs, "one")
    place, now_s = code_place(runs, TREE.digest), time.time()
    (place / "files/a/__pycache__").mkdir()
    (place / "files/a/__pycache__/b.pyc").touch()
    (folder / archive_name(TREE)).unlink()
    monkeypatch.setattr(time, "time", lambda: now_s + A_WEEK_AND_MORE_S)
    remove_unused(place.parent)
    assert not place.exists()


def test_what_a_killed_process_left_is_removed_after_a_week(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(runs, "one")
    place, now_s = code_place(runs, TREE.digest), time.time()
    half = place.rename(place.with_name(f".{place.name}.0123abcd.tmp"))
    remove_unused(place.parent)
    assert half.exists(), "it may be made at this moment"
    monkeypatch.setattr(time, "time", lambda: now_s + A_WEEK_AND_MORE_S)
    remove_unused(place.parent)
    assert not half.exists()


def lead_elsewhere(files: Path) -> None:
    (files / "data").unlink()
    (files / "data").symlink_to("/other")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "bytes": lambda files: (files / "train.py").write_bytes(b"print(2)\n"),
    "gone": lambda files: (files / "a/b/é.py").unlink(),
    "all": lambda files: shutil.rmtree(files.parent),
    "mode": lambda files: (files / "run it.sh").chmod(0o600),
    "link": lead_elsewhere,
    "open to others": lambda files: (files / "a").chmod(0o777),
    "index": lambda files: (files.parent / "index").write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_damage_is_seen_and_mended(runs: Path, damage: Callable[[Path], object]) -> None:
    folder = a_run(runs, "one")
    place = code_place(runs, TREE.digest)
    damage(place / "files")
    assert not is_whole(place, TREE.digest)
    tree = read_archive(folder, TREE.digest)
    assert tree is not None
    add_code(folder, runs, tree)
    assert is_whole(place, TREE.digest)
    assert [each.name for each in place.parent.iterdir()] == [place.name]


def test_a_folder_of_snapshots_that_others_can_write_to_is_refused(runs: Path) -> None:
    (runs / ".code").mkdir()
    (runs / ".code").chmod(0o777)
    with pytest.raises(PermissionError, match="other users can write to it"):
        a_run(runs, "one")


def archive_of(*members: tuple[str, bytes | str, bytes]) -> bytes:
    """A tar with members that no snapshot has: name, kind, and content or target."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind if isinstance(kind, bytes) else kind.encode()
            if info.type == tarfile.REGTYPE:
                info.size = len(content)
            else:
                info.linkname = content.decode()
            tar.addfile(info, io.BytesIO(content) if info.type == tarfile.REGTYPE else None)
    return gzip.compress(buffer.getvalue())


FILE, LINK = tarfile.REGTYPE, tarfile.SYMTYPE
HOSTILE = {
    "a name that leads out": archive_of(("../evil.py", FILE, b"")),
    "an absolute name": archive_of(("/tmp/evil.py", FILE, b"")),
    "a file below a link": archive_of(("a", LINK, b"/tmp"), ("a/evil.py", FILE, b"")),
    "a link below a link": archive_of(("a", LINK, b"/tmp"), ("a/b", LINK, b"/tmp")),
    "a file below a file": archive_of(("a", FILE, b""), ("a/evil.py", FILE, b"")),
    "twice": archive_of(("a", LINK, b"/tmp"), ("a", FILE, b"")),
    "a hard link": archive_of(("a", tarfile.LNKTYPE, b"/etc/passwd")),
    "a pipe": archive_of(("a", tarfile.FIFOTYPE, b"")),
    "a device": archive_of(("a", tarfile.CHRTYPE, b"")),
    "standard input": archive_of(("-", FILE, b"")),
    "a line": archive_of(("a\nb", FILE, b"")),
    "a link as a line": archive_of(("a", LINK, b"/tmp\nb")),
    "no archive": b"no archive",
    "nothing": b"",
    "cut": pack(TREE)[:-20],
}


@pytest.mark.parametrize("archive", HOSTILE.values(), ids=list(HOSTILE))
def test_an_archive_that_others_wrote_does_no_harm(
    runs: Path, tmp_path: Path, archive: bytes
) -> None:
    with pytest.raises(DamagedArchiveError):
        unpack(archive, is_private=False)
    folder = runs / "one"
    folder.mkdir()
    (folder / archive_name(TREE)).write_bytes(archive)
    assert read_archive(folder, TREE.digest) is None
    assert not (tmp_path / "evil.py").exists()


def test_an_archive_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(DamagedArchiveError):
        unpack(gzip.compress(bytes(256 << 20), 1), is_private=False)
