"""The recorded checksums of run.json."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hpcflow.storage.frozen import matches_frozen, record_frozen, record_frozen_first
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import create_run
from tests.hostile import bounded
from tests.storage.runs import make_run


class KilledError(BaseException):
    """What ends the process at any line."""


def test_a_pipe_in_the_place_of_a_checksum_holds_up_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    run_dir = create_run(make_run(tmp_path), home)
    recorded = home.frozen / run_dir.path.name
    recorded.unlink()
    os.mkfifo(recorded)
    with bounded():
        assert not matches_frozen(home, run_dir.path.name, run_dir.run_json.read_bytes())
        record_frozen(home, run_dir)
        assert matches_frozen(home, run_dir.path.name, run_dir.run_json.read_bytes())


#: What can go wrong while a record is written: the disk is full at once, in the middle, at the end.
FAILS = {
    "open": "os.open",
    "write": "os.write",
    "close": "os.close",
    "rename": "pathlib.Path.replace",
}


@pytest.mark.parametrize("when", FAILS)
@pytest.mark.parametrize("error", [OSError(errno.EDQUOT, "Disk quota exceeded"), KilledError()])
def test_a_record_that_cannot_be_written_again_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, error: BaseException
) -> None:
    """``hpcflow resume`` and ``hpcflow release`` write it again; it is the same, as a rule."""
    home = Home(tmp_path / "home")
    run_dir = create_run(make_run(tmp_path), home)
    before = (home.frozen / run_dir.path.name).read_bytes()
    data = run_dir.run_json.read_bytes()
    open_, close = os.open, os.close

    def fails(*given: Any, **more: Any) -> Any:
        if when == "open" and not given[1] & os.O_WRONLY:
            return open_(*given, **more)
        if when == "close":
            is_read = not fcntl.fcntl(given[0], fcntl.F_GETFL) & os.O_WRONLY
            close(given[0])
            if is_read:
                return None
        raise error

    with monkeypatch.context() as meanwhile, suppress(KilledError):
        meanwhile.setattr(FAILS[when], fails)
        record_frozen(home, run_dir)
    assert (home.frozen / run_dir.path.name).read_bytes() == before
    assert matches_frozen(home, run_dir.path.name, data)
    assert [each.name for each in home.frozen.iterdir()] == [run_dir.path.name]


def test_an_empty_record_is_written_again_with_the_next_attempt_and_no_other_is(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    run_dir = create_run(make_run(tmp_path), home)
    recorded = home.frozen / run_dir.path.name
    before = recorded.read_bytes()
    recorded.write_bytes(b"")
    record_frozen_first(home, run_dir)
    assert recorded.read_bytes() == before
    run_dir.run_json.write_bytes(b"{}")
    record_frozen_first(home, run_dir)
    assert recorded.read_bytes() == before, "a person has to see what was changed"
