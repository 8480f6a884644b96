"""The record of what was mirrored of a journal."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.storage.layout import Home
from hpcflow.storage.mirrored_journal import path_of, read_mirrored, record_mirrored

RUN = "digits-20260301-abcdefgh"


def test_a_journal_that_has_grown_begins_with_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert read_mirrored(home, RUN) is None
    record_mirrored(home, RUN, b"one\ntwo\n")
    mirrored = read_mirrored(home, RUN)
    assert mirrored is not None
    assert mirrored.begins(b"one\ntwo\n")
    assert mirrored.begins(b"one\ntwo\nthree\n")
    assert not mirrored.begins(b"one\n")
    assert not mirrored.begins(b"one\nTWO\n")
    assert not mirrored.begins(b"")
    record_mirrored(home, RUN, b"other\n")
    other = read_mirrored(home, RUN)
    assert other is not None
    assert other.begins(b"other\n")


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    record_mirrored(home, RUN, b"one\n")
    assert stat.S_IMODE(home.mirrored.stat().st_mode) == 0o700
    assert stat.S_IMODE(path_of(home, RUN).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text", [b"", b"x", b"12", b"12 ", b"-1 abc", b"\xff\xff 7", b"9" * 4000, b"1 2 3"]
)
def test_a_damaged_record_is_none(tmp_path: Path, text: bytes) -> None:
    home = Home(tmp_path / "home")
    record_mirrored(home, RUN, b"one\n")
    path_of(home, RUN).write_bytes(text)
    assert read_mirrored(home, RUN) is None


def test_a_record_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    record_mirrored(home, RUN, b"one\n")
    path_of(home, RUN).unlink()
    path_of(home, RUN).mkdir()
    with pytest.raises(StorageError):
        read_mirrored(home, RUN)
