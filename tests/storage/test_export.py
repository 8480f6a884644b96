"""A copy of a checkpoint is there wholly and is what was written, or it is not there."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from hpcflow.errors import InputError, StorageError
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import Written, files_below
from hpcflow.runtime.manifest import manifest_bytes, verify
from hpcflow.runtime.store import CheckpointStore
from hpcflow.storage.export import FolderSource, export
from tests.cluster_fixture import small_disk
from tests.owners import give_all_files_below
from tests.runtime.published import publish
from tests.runtime.sizes import BEYOND_2_GIB, end_of, write_large, write_many

MODEL = b"weights " * 300_000


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint with files in folders, under names as people give them."""
    files = {"model.pt": MODEL, "shards of it/schwarz-weiß.bin": MODEL, "empty": b""}
    return publish(tmp_path / "checkpoints", 400, files, run_id="r").path


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files_below(folder)}


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_copy_is_a_whole_checkpoint(saved: Path, weird_tmp_path: Path) -> None:
    target = weird_tmp_path / "model of ada"
    told: list[int] = []
    files = export(FolderSource(saved), target, told.append)
    assert files_of(target) == files_of(saved)
    assert files.keys() == files_of(saved).keys() - {"manifest.json"}
    assert verify(target).train_step == 400
    assert sum(told) == 2 * len(MODEL)
    assert left_behind(weird_tmp_path) == []


def test_a_copy_is_for_its_owner_alone_as_the_original_is(saved: Path, tmp_path: Path) -> None:
    """It goes where everybody may look; who wants to share it says so, by chmod."""
    before = os.umask(0o022)
    try:
        export(FolderSource(saved), tmp_path / "copy")
    finally:
        os.umask(before)
    copied = [tmp_path / "copy", *(tmp_path / "copy").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in copied if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in copied if path.is_file()} == {0o600}


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_very_many_small_files_under_any_names(tmp_path: Path, count: int) -> None:
    write_many(tmp_path / "files", count)
    files = files_of(tmp_path / "files")
    saved = publish(tmp_path / "checkpoints", 400, files).path
    told: list[int] = []
    export(FolderSource(saved), tmp_path / "copy", told.append)
    assert files_of(tmp_path / "copy") == files_of(saved)
    assert sum(told) == sum(map(len, files.values()))
    assert len(files) == count


@pytest.mark.parametrize(
    "size_bytes", [(200 << 20) + 1, pytest.param(BEYOND_2_GIB, marks=pytest.mark.soak)]
)
def test_a_large_file_also_one_that_31_bits_cannot_count(tmp_path: Path, size_bytes: int) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    large = store.stage(400, 7) / "model.pt"
    write_large(large, size_bytes)
    files = {"model.pt": Written(size_bytes, sha256_of(large))}
    saved = store.publish(large.parent, 400, files).path
    told: list[int] = []
    assert export(FolderSource(saved), tmp_path / "copy", told.append) == files
    assert end_of(tmp_path / "copy" / "model.pt") == (size_bytes, b"!")
    assert sum(told) == size_bytes


def test_nothing_is_overwritten(saved: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "file").touch()
    for name in ("mine", "file", "nowhere"):
        with pytest.raises(InputError, match="exists, and is not overwritten"):
            export(FolderSource(saved), tmp_path / name)
    with pytest.raises(InputError, match="no folder"):
        export(FolderSource(saved), tmp_path / "no" / "such")
    assert list(mine.iterdir()) == []


def flip(saved: Path) -> None:
    data = bytearray(MODEL)
    data[len(data) // 2] ^= 1
    (saved / "model.pt").write_bytes(data)


def cut(saved: Path) -> None:
    os.truncate(saved / "model.pt", 1000)


def grow(saved: Path) -> None:
    with (saved / "model.pt").open("ab") as file:
        file.write(MODEL)


def lose(saved: Path) -> None:
    (saved / "model.pt").unlink()


def lead_away(saved: Path) -> None:
    lose(saved)
    (saved / "model.pt").symlink_to("/etc/hostname")


def lose_manifest(saved: Path) -> None:
    (saved / "manifest.json").unlink()


def from_the_future(saved: Path) -> None:
    change(saved, format=99)


def lead_out(saved: Path) -> None:
    change(saved, files={"../../escaped": {"size_bytes": 0, "sha256": ""}})


def no_sizes(saved: Path) -> None:
    change(saved, files={"model.pt": {}})


def no_number(saved: Path) -> None:
    change(saved, files={"model.pt": {"size_bytes": float("inf"), "sha256": ""}})


def no_name(saved: Path) -> None:
    change(saved, files={"\ud800": {"size_bytes": 0, "sha256": ""}})


def another_size(saved: Path) -> None:
    path = saved / "manifest.json"
    path.write_text(path.read_text().replace("2400000", "2400001"))


def change(saved: Path, **facts: object) -> None:
    path = saved / "manifest.json"
    path.write_bytes(manifest_bytes({**json.loads(path.read_bytes()), **facts}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flip, "model.pt is not what was written: its checksum differs"),
        (cut, "model.pt is not what was written: its size is not 2400000 bytes"),
        (grow, "model.pt is not what was written: its size is not 2400000 bytes"),
        (lose, "model.pt cannot be read: "),
        (lead_away, "model.pt cannot be read: model.pt is a link"),
        (lose_manifest, "its manifest.json cannot be read: "),
        (from_the_future, "it has format 99; this version of hpcflow reads 1"),
        (lead_out, "its manifest names a file outside of it: '../../escaped'"),
        (no_sizes, "its manifest.json is damaged"),
        (no_number, "its manifest.json is damaged"),
        (no_name, "its manifest has an invalid file name: '\\ud800'"),
        (another_size, "its manifest.json is not what was written: its checksum differs"),
    ],
)
def test_what_is_not_whole_is_not_copied(
    saved: Path, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    damage(saved)
    with pytest.raises(StorageError) as caught:
        export(FolderSource(saved), tmp_path / "copy")
    assert f"{saved} is damaged or incomplete, and was not copied: {words}" in str(caught.value)
    assert not (tmp_path / "copy").exists()
    assert left_behind(tmp_path) == []
    assert not (tmp_path / "escaped").exists()


def test_a_disk_that_is_full_is_told_and_left_clean(saved: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with small_disk(small, "3m"):
        with pytest.raises(StorageError, match="No space left on device"):
            export(FolderSource(saved), small / "copy")
        assert list(small.iterdir()) == []


def test_an_interruption_leaves_nothing(saved: Path, tmp_path: Path) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(FolderSource(saved), tmp_path / "copy", interrupt)
    assert not (tmp_path / "copy").exists()
    assert left_behind(tmp_path) == []


class Store:
    """A checkpoint that lies in no folder."""

    name = "s3://bucket/run/checkpoints/000000400"

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def manifest(self) -> bytes:
        return self._files["manifest.json"]

    def open(self, name: str) -> BinaryIO:
        if name not in self._files:
            raise FileNotFoundError(name)
        return io.BytesIO(self._files[name])


def test_a_checkpoint_may_come_from_anywhere(saved: Path, tmp_path: Path) -> None:
    files = files_of(saved)
    export(Store(files), tmp_path / "copy")
    assert verify(tmp_path / "copy").train_step == 400
    del files["empty"]
    place = "s3://bucket/run/checkpoints/000000400"
    with pytest.raises(StorageError, match=rf"^{place} is damaged or incomplete"):
        export(Store(files), tmp_path / "other")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that a teammate can write to, with another folder of the user in it."""
    folder = tmp_path / "project"
    (folder / "thesis").mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "thesis").chmod(0o700)
    (folder / "thesis" / "text").write_text("years")
    return folder


def half_in(folder: Path) -> Path:
    (half,) = folder.glob(".copy.*.tmp")
    return half


def lead_to_private(folder: Path) -> None:
    half = half_in(folder)
    half.rename(folder / "aside")
    half.symlink_to(folder.parent / "private")


def put_thesis(folder: Path) -> None:
    half = half_in(folder)
    half.rename(folder / "aside")
    (folder / "thesis").rename(half)


def put_thesis_that_collides(folder: Path) -> None:
    (folder / "thesis" / "manifest.json").write_text("")
    put_thesis(folder)


def put_own(folder: Path) -> None:
    half = half_in(folder)
    half.rename(folder / "aside")
    half.mkdir(mode=0o777)


@pytest.mark.parametrize(
    "swap", [lead_to_private, put_thesis, put_thesis_that_collides, put_own, None]
)
def test_nothing_is_written_or_removed_where_others_have_swapped_folders(
    saved: Path, shared: Path, swap: Callable[[Path], None] | None
) -> None:
    """They see the name of the half copy for as long as it takes."""
    private = shared.parent / "private"
    private.mkdir()
    told: list[int] = []

    def tell(size_bytes: int) -> None:
        if not told and swap is not None:
            swap(shared)
        elif not told:
            (shared / "thesis").rename(shared / "copy")  # in the place of the target
        told.append(size_bytes)

    with pytest.raises(StorageError, match="cannot write"):
        export(FolderSource(saved), shared / "copy", tell)
    assert list(private.iterdir()) == []
    texts = [path for path in shared.rglob("text") if path.read_text() == "years"]
    assert len(texts) == 1
    assert not any(path.name == "model.pt" for path in shared.rglob("*"))


def test_a_folder_of_another_user_is_not_filled(
    saved: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have put it there before it could be opened."""
    if os.geteuid() != 0:
        pytest.skip("gives a folder to another user")

    make = Path.mkdir

    def swapped(path: Path, *given: Any, **named: Any) -> None:
        make(path, *given, **named)
        if path.name.startswith(".copy."):
            os.chown(path, 4711, 4711)

    monkeypatch.setattr(Path, "mkdir", swapped)
    with pytest.raises(StorageError, match="it belongs to another user") as caught:
        export(FolderSource(saved), shared / "copy")
    assert "use a directory of your own" in (caught.value.next_action or "")
    assert list(half_in(shared).iterdir()) == []


@pytest.mark.parametrize("owner", [65534, 4711])
def test_a_file_system_that_gives_all_files_to_one_owner_takes_a_copy(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int
) -> None:
    """As a CIFS mount with `uid=`, and an NFS export with `all_squash`."""
    drive = tmp_path / "drive"
    drive.mkdir()
    give_all_files_below(drive, owner, monkeypatch)
    export(FolderSource(saved), drive / "copy")
    assert files_of(drive / "copy") == files_of(saved)
    assert left_behind(drive) == []


def test_an_error_names_the_file_as_people_know_it(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("hpcflow.storage.export.write_new", full)
    with pytest.raises(StorageError) as caught:
        export(FolderSource(saved), tmp_path / "copy")
    assert "/proc" not in str(caught.value)


@pytest.mark.parametrize("refused", [False, True])
def test_a_file_system_without_modes_takes_a_copy(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """A CIFS mount opens all to a group and takes each mode without effect; vfat refuses it."""
    mkdir = os.mkdir

    def forced(path: Any, mode: int = 0o777, **options: Any) -> None:
        mkdir(path, mode, **options)
        real_chmod(path, 0o770)

    def ignored(*_: object, **__: object) -> None:
        if refused:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    real_chmod = os.chmod
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", forced)
        patch.setattr(os, "chmod", ignored)
        patch.setattr(os, "fchmod", ignored)
        export(FolderSource(saved), tmp_path / "copy")
    assert files_of(tmp_path / "copy") == files_of(saved)
    assert left_behind(tmp_path) == []


def test_what_others_put_in_the_place_of_a_copy_keeps_its_mode(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    (shared / "of the team").write_text("")
    mkdir = os.mkdir

    def swapped(path: Any, mode: int = 0o777, **options: Any) -> None:
        mkdir(path, mode, **options)
        if Path(path).name.endswith(".tmp"):
            Path(path).rmdir()
            shared.rename(path)

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="another user"):
        patch.setattr(os, "mkdir", swapped)
        export(FolderSource(saved), tmp_path / "copy")
    (moved,) = tmp_path.glob(".copy.*")
    assert moved.stat().st_mode & 0o777 == 0o770
    assert list(files_of(moved)) == ["of the team"]
