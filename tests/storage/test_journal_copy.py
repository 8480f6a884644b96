"""The home's copy of a journal that was mirrored."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.storage.journal_copy import forget_copy, path_of, read_copy, write_copy
from hpcflow.storage.layout import Home

RUN = "digits-20260301-abcdefgh"


def test_it_has_the_whole_lines(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert read_copy(home, RUN) is None
    write_copy(home, RUN, b"one\ntwo\ntor")
    assert read_copy(home, RUN) == b"one\ntwo\n"
    for nothing in (b"", b"tor"):  # a journal without a line says nothing
        write_copy(home, RUN, nothing)
        assert read_copy(home, RUN) == b"one\ntwo\n"
    for _ in range(2):
        forget_copy(home, RUN)
    assert read_copy(home, RUN) is None


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    write_copy(home, RUN, b"one\n")
    assert stat.S_IMODE(home.journals.stat().st_mode) == 0o700
    assert stat.S_IMODE(path_of(home, RUN).stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["cut", "emptied", "changed", "added", "first line"])
def test_a_damaged_copy_is_none(tmp_path: Path, damage: str) -> None:
    home = Home(tmp_path / "home")
    write_copy(home, RUN, b"one\ntwo\n")
    path = path_of(home, RUN)
    data = path.read_bytes()
    damaged = {
        "cut": data[:-4],
        "emptied": b"",
        "changed": data.replace(b"one", b"One"),
        "added": data + b"x\n",
        "first line": b"\0" + data,
    }
    path.write_bytes(damaged[damage])
    assert read_copy(home, RUN) is None


def test_a_copy_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    path_of(home, RUN).mkdir(parents=True)
    with pytest.raises(StorageError):
        read_copy(home, RUN)
