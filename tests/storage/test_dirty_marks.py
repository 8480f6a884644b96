"""A mark says "read this run again", and goes away by itself when nobody can need it any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.storage.dirty_marks import dirty_runs, forget_old_marks, mark_dirty
from hpcflow.storage.layout import Home, RunDir

RUN = RunDir(Path("/scratch/hpcflow/vision/digits-20260301-aaaaaaaa"))


def grow_old(mark: Path, *, minutes: float) -> None:
    then = mark.stat().st_mtime - 60 * minutes
    os.utime(mark, (then, then))


def test_a_mark_stays_until_it_is_old(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert dirty_runs(home) == []
    mark_dirty(home, RUN)
    mark_dirty(home, RUN)
    assert dirty_runs(home) == [RUN.path.name]

    grow_old(home.unread / RUN.path.name, minutes=59)
    forget_old_marks(home, dirty_runs(home))
    assert dirty_runs(home) == [RUN.path.name]
    grow_old(home.unread / RUN.path.name, minutes=2)
    forget_old_marks(home, [RUN.path.name, "gone-20260301-aaaaaaaa"])
    assert dirty_runs(home) == []


def test_a_home_that_cannot_be_marked_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StorageError):
        mark_dirty(Home(tmp_path / "home"), RUN)


def test_a_link_in_the_place_of_a_mark_is_not_followed(tmp_path: Path) -> None:
    home, elsewhere = Home(tmp_path / "home"), tmp_path / "elsewhere"
    elsewhere.touch()
    os.utime(elsewhere, (0, 0))
    home.unread.mkdir(parents=True)
    for name in (RUN.path.name, ".now"):
        (home.unread / name).symlink_to(elsewhere)
    with pytest.raises(StorageError, match=RUN.path.name):
        mark_dirty(home, RUN)
    forget_old_marks(home, dirty_runs(home))
    assert elsewhere.stat().st_mtime == 0
