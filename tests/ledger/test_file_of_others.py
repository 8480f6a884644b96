"""A ledger in a file, in a directory where other users can put files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcflow.errors import LedgerError
from hpcflow.ledger.store import open_ledger

#: Mode of the directory, mode of the file.
UNSAFE = {
    "a directory for all": (0o777, 0o600),
    "a sticky one": (0o1777, 0o600),
    "a file for all": (0o700, 0o666),
}


@pytest.mark.parametrize("kind", UNSAFE)
def test_it_is_not_opened(tmp_path: Path, kind: str) -> None:
    folder, path = tmp_path / "team", tmp_path / "team" / "ledger.sqlite"
    folder.mkdir()
    open_ledger(str(path)).close()
    before = path.read_bytes()
    of_folder, of_file = UNSAFE[kind]
    path.chmod(of_file)
    folder.chmod(of_folder)
    # SQLite would wait for it for ever.
    os.mkfifo(path.with_name("ledger.sqlite-journal"))
    with pytest.raises(LedgerError, match="every user can write to") as caught:
        open_ledger(str(path))
    assert not caught.value.retryable
    assert path.read_bytes() == before


def test_a_link_there_makes_no_tables_in_a_file_of_this_user(tmp_path: Path) -> None:
    folder, private = tmp_path / "team", tmp_path / "private.sqlite"
    folder.mkdir()
    private.touch()
    (folder / "ledger.sqlite").symlink_to(private)
    folder.chmod(0o777)
    with pytest.raises(LedgerError, match="every user can write to"):
        open_ledger(str(folder / "ledger.sqlite"))
    assert private.read_bytes() == b""


def test_nor_is_what_a_link_in_ones_own_directory_leads_to(tmp_path: Path) -> None:
    team = tmp_path / "team"
    team.mkdir()
    (tmp_path / "ledger.sqlite").symlink_to(team / "ledger.sqlite")
    open_ledger(str(tmp_path / "ledger.sqlite")).close()
    team.chmod(0o1777)
    with pytest.raises(LedgerError, match="every user can write to"):
        open_ledger(str(tmp_path / "ledger.sqlite"))
