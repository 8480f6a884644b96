"""Files survive a crash: whole or not there, and a torn line spoils nothing but itself."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import subprocess
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.mirror.small_files import due_files
from hpcflow.runtime.reading import MAX_FILE_BYTES, UnsafeFileError, read_file
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.files import (
    append_line_durably,
    link_tree,
    read_from,
    size_below,
    size_of,
    write_durably,
)
from hpcflow.storage.layout import RunDir
from tests.hostile import bounded


def test_what_is_written_is_there_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_durably(path, "grün")
    write_durably(path, b"second")

    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_content_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "state.json"
    write_durably(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path if call == "replace" else os, call, full)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        write_durably(path, "new")
    monkeypatch.undo()

    assert "delete what you no longer need" in str(caught.value)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_a_torn_last_line_is_closed_before_the_next_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"record": "whole"}\n{"record": "to')

    append_line_durably(path, '{"record": "next"}\n')

    assert path.read_bytes() == b'{"record": "whole"}\n{"record": "to\n{"record": "next"}\n'


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_a_large_checkpoint_is_copied_where_there_are_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """In little memory, whatever its size: BeeGFS links only within a folder."""
    source, size = tmp_path / "000000100", MAX_FILE_BYTES + 5
    (source / "rank0").mkdir(parents=True)
    with (source / "rank0/model.pt").open("wb") as file:
        file.write(b"begin")
        file.truncate(size)

    def no_links(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_links)
    with bounded():
        link_tree(source, tmp_path / "start")
    copy = tmp_path / "start/rank0/model.pt"
    assert copy.stat().st_size == size
    assert copy.stat().st_mode & 0o777 == 0o600
    with copy.open("rb") as copied:
        assert copied.read(6) == b"begin\0"


def _append_many(path: Path, letter: str) -> None:
    for _ in range(50):
        append_line_durably(path, letter * 200)


def test_two_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, letter)) for letter in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    lines = path.read_text().splitlines()
    assert sorted(lines) == ["a" * 200] * 50 + ["b" * 200] * 50


def test_reading_goes_on_from_an_offset_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert read_from(path, 0, 10) == b""
    assert size_of(path) is None
    path.write_bytes(b"0123456789")

    assert read_from(path, 3, 4) == b"3456"
    assert read_from(path, 10, 4) == b""
    assert size_of(path) == 10


def test_what_cannot_be_read_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a regular file") as caught:
        read_from(tmp_path, 0, 10)
    assert "→" in str(caught.value)


@pytest.mark.parametrize("what", ["pipe", "socket", "device", "folder", "link"])
def test_what_is_no_file_is_never_waited_for(tmp_path: Path, what: str) -> None:
    """Whoever opens a pipe waits until somebody writes into it."""
    path = tmp_path / "it"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif what == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    elif what == "link":
        path.symlink_to(__file__)
    else:
        path.mkdir()
    why = "symbolic link" if what == "link" else "not a regular file"
    with pytest.raises(StorageError, match=rf"cannot read .*{why}"):
        read_from(path, 0, 10)
    with pytest.raises(UnsafeFileError):
        read_file(path)
    with pytest.raises(StorageError, match="cannot append to"):
        append_line_durably(path, "line")


def test_folders_may_be_thousands_deep(tmp_path: Path) -> None:
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(1900):
            os.mkdir("d")  # noqa: PTH102 - a Path of it would be too long
            os.chdir("d")
    finally:
        os.chdir(here)
    (tmp_path / "d" / "x").write_bytes(b"1234567")
    assert size_below(tmp_path) == 7
    assert [each.name for each in due_files(RunDir(tmp_path), "/store", 1e12)] == ["d/x"]
    # Without recursion, which pytest's own cleaning-up would end in.
    subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True)


def test_a_refusal_names_the_folder_to_look_at_as_a_shell_wants_it(tmp_path: Path) -> None:
    closed = tmp_path / "a b"
    closed.mkdir()
    error = PermissionError(errno.EACCES, "Permission denied", str(closed / "x" / "y"))
    assert f"ls -ld '{closed}'" in str(storage_error("write", closed / "x" / "y" / "z", error))
