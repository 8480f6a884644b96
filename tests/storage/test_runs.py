"""A run is found by its id, by the beginning of it, by its name; else the error helps."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hpcflow.errors import NotFoundError, StorageError
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import find_run, is_gone, linked, list_runs, run_dir_of

DIGITS = "digits-20260301-aaaaaaaa"
DIGITS_LATER = "digits-20260302-bbbbbbbb"
DIGITS_BIG = "digits-big-20260301-cccccccc"
GPT = "gpt-20260301-dddddddd"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.runs.mkdir(parents=True)
    for run_id in (DIGITS, DIGITS_LATER, DIGITS_BIG, GPT):
        link(home, run_id, tmp_path)
    return home


def link(home: Home, run_id: str, tmp_path: Path) -> None:
    """Enter a run as `create_run` does, a second after the one before."""
    path = home.scratch_link(run_id)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "scratch" / run_id)
    made_s = len(list(home.runs.iterdir()))
    os.utime(path, (made_s, made_s), follow_symlinks=False)


def forget(home: Home, run_id: str) -> None:
    """Delete its record."""
    shutil.rmtree(home.runs / run_id)


@pytest.mark.parametrize(
    ("text", "run_id"),
    [(DIGITS, DIGITS), ("digits-20260302", DIGITS_LATER), ("digits-big", DIGITS_BIG), ("g", GPT)],
)
def test_what_means_one_run_finds_it(home: Home, text: str, run_id: str) -> None:
    assert find_run(home, text).path.name == run_id


def test_a_name_is_not_confused_with_a_longer_one(home: Home, tmp_path: Path) -> None:
    forget(home, DIGITS_LATER)
    assert find_run(home, "digits") == home.run_dir(tmp_path / "scratch" / DIGITS)


def test_several_candidates_are_listed_newest_first(home: Home) -> None:
    with pytest.raises(NotFoundError, match=f"matches 2 runs: {DIGITS_LATER}, {DIGITS}") as caught:
        find_run(home, "digits")
    assert f"the newest is {DIGITS_LATER}" in str(caught.value)


def test_who_only_looks_gets_the_newest_run_of_exactly_that_name(
    home: Home, tmp_path: Path
) -> None:
    assert find_run(home, "digits", newest=True).path.name == DIGITS_LATER
    same_day = "digits-20260302-aaaaaaab"
    link(home, same_day, tmp_path)
    assert find_run(home, "digits", newest=True).path.name == same_day
    assert find_run(home, DIGITS, newest=True).path.name == DIGITS
    with pytest.raises(NotFoundError, match="matches 2 runs"):
        find_run(home, "digits-20260302", newest=True)
    forget(home, DIGITS_BIG)
    link(home, "digits-big-20260303-cccccccd", tmp_path)
    assert find_run(home, "digits", newest=True).path.name == same_day


@pytest.mark.parametrize("text", ["", "../../etc", "x" * 5000, "digits\n", "di*"])
def test_what_means_no_run_says_how_to_list_them(home: Home, text: str) -> None:
    with pytest.raises(NotFoundError, match="hpcflow ls") as caught:
        find_run(home, text)
    assert len(str(caught.value)) < 500


def test_a_misspelt_name_gets_the_nearest(home: Home) -> None:
    with pytest.raises(NotFoundError, match="did you mean gpt"):
        find_run(home, "gtp")


def test_only_run_ids_are_runs(home: Home) -> None:
    (home.runs / f".{GPT}.12ab.tmp").mkdir()
    (home.runs / "notes.txt").write_text("mine")
    assert [run_dir.path.name for run_dir in list_runs(home)] == sorted(
        [DIGITS, DIGITS_LATER, DIGITS_BIG, GPT]
    )


def test_a_new_home_has_no_runs(tmp_path: Path) -> None:
    assert list_runs(Home(tmp_path / "none")) == []
    with pytest.raises(NotFoundError):
        run_dir_of(Home(tmp_path / "none"), GPT)


def test_a_home_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StorageError, match="Not a directory"):
        list_runs(Home(tmp_path / "home"))


def test_a_run_that_is_thrown_away_while_somebody_lists_is_left_out(
    home: Home, tmp_path: Path
) -> None:
    refused = "refused-20260301-eeeeeeee"
    assert linked(home, [refused, GPT]) == [home.run_dir(tmp_path / "scratch" / GPT)]


def test_only_what_does_not_exist_is_gone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert is_gone(RunDir(tmp_path / "nowhere"))
    assert is_gone(RunDir(tmp_path / "file" / "below"))
    assert not is_gone(RunDir(tmp_path / ("x" * 300))), "it cannot be looked at"


def test_what_a_job_leaves_in_the_place_of_a_deleted_directory_is_no_run(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    (run_dir.checkpoints / "000000100").mkdir(parents=True)
    assert is_gone(run_dir)
    run_dir.params_json.touch()
    assert not is_gone(run_dir)
    run_dir.params_json.unlink()
    run_dir.runtime_init.parent.mkdir(parents=True)
    assert is_gone(run_dir), "a purge leaves directories"
    run_dir.runtime_init.touch()
    assert not is_gone(run_dir), "a purge took only what no job has read for long"


@pytest.mark.parametrize(
    "target", ["/etc", "/", "..", ".", "nothing", "scratch/" + GPT, "/" + GPT, "/scratch/" + DIGITS]
)
def test_a_link_that_leads_to_no_run_directory_hides_no_other(home: Home, target: str) -> None:
    home.scratch_link(GPT).unlink()
    home.scratch_link(GPT).symlink_to(target)
    said: list[str] = []

    found = list_runs(home, said.append)

    assert [each.path.name for each in found] == [DIGITS, DIGITS_LATER, DIGITS_BIG]
    (text,) = said
    assert text.startswith(f"{GPT}: skipped: its link in")
    assert text.endswith(f"rm {home.scratch_link(GPT)}")
    with pytest.raises(NotFoundError, match="which is not its run directory") as caught:
        find_run(home, GPT)
    assert str(home.scratch_link(GPT)) in str(caught.value)


def test_a_home_of_an_older_hpcflow_is_refused_with_the_command_that_upgrades_it(
    home: Home, tmp_path: Path
) -> None:
    older = "older-20260301-eeeeeeee"
    (home.runs / older).symlink_to(tmp_path / "scratch" / "project" / older)
    with pytest.raises(StorageError, match="hpcflow home upgrade"):
        list_runs(home)
    (home.runs / older).unlink()
    assert len(list_runs(home)) == 4
    (home.path / "frozen").mkdir()
    with pytest.raises(StorageError, match="hpcflow home upgrade"):
        find_run(home, GPT)
