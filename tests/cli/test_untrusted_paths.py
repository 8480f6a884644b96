"""After a purge another user makes a directory above a run anew, or a link: nobody follows it.

The other runs go on, and one warning says what is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from hpcflow.cli.main import main
from hpcflow.ownership import Trust, foreign_part, weak_point
from hpcflow.resources import resource_dir
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import link_of, list_runs
from tests.cli.test_hostile_files import LISTING, OF_ALL
from tests.hostile import held_run
from tests.untrusted_paths import EVE, SAFE, UNSAFE, folders

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")

OF_A_RUN: Final = (
    "show",
    "history",
    "why",
    "logs",
    "hold",
    "release",
    "resume",
    "cancel",
    "checkpoint ls",
    "checkpoint verify",
    "mirror status",
    "restore",
)


class Opened:
    """Which files and folders below a folder this process opens."""

    def __init__(self) -> None:
        self.below: Path | None = None
        self.paths: list[str] = []
        sys.addaudithook(self._look)

    def _look(self, event: str, args: tuple[object, ...]) -> None:
        if self.below is None or event not in ("open", "os.scandir", "os.listdir", "os.mkdir"):
            return
        if isinstance(args[0], (str, bytes, os.PathLike)):
            path = os.fsdecode(args[0])
            if path.startswith(f"{self.below}/"):
                self.paths.append(path)


_OPENED: Final = Opened()  # a hook stays for ever


@pytest.fixture
def opened() -> Iterator[Opened]:
    yield _OPENED
    _OPENED.below, _OPENED.paths = None, []


def eves_link(scratch: Path) -> None:
    """The user's own files, but not those that were there."""
    scratch.parent.chmod(0o1777)
    scratch.rename(scratch.parent / "of-old")
    scratch.symlink_to("of-old")
    os.chown(scratch, EVE, EVE, follow_symlinks=False)


def eves_link_in_an_open_folder(scratch: Path) -> None:
    eves_link(scratch)
    scratch.parent.chmod(0o777)


def eves_directory(scratch: Path) -> None:
    scratch.parent.chmod(0o1777)
    os.chown(scratch, EVE, EVE)


def eves_directory_with_nothing_in_it(scratch: Path) -> None:
    scratch.rename(scratch.parent / "of-old")
    scratch.mkdir()
    eves_directory(scratch)


ATTACKS: Final = (
    eves_link,
    eves_link_in_an_open_folder,
    eves_directory,
    eves_directory_with_nothing_in_it,
)


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    home.mkdir(mode=0o700)
    return Home(home)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A folder of the user in one that all users share."""
    folder = tmp_path / "shared/ada"
    folder.mkdir(parents=True)
    return folder


def said(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    main(list(words))
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err
    return " ".join((captured.out + captured.err).split())


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for top, inner, files in os.walk(folder):
        for name in (*inner, *files):
            status = os.lstat(f"{top}/{name}")
            found[f"{top}/{name}"] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("is_over", [True, False])
def test_no_command_follows_another_user_to_a_run(
    place: Home,
    scratch: Path,
    capfd: pytest.CaptureFixture[str],
    opened: Opened,
    attack: Callable[[Path], None],
    is_over: bool,
) -> None:
    good = held_run(place, name="good").path.name
    bad = [held_run(place, name=f"bad{n}", is_over=is_over, scratch=scratch).path for n in range(3)]
    said(capfd, "ls")
    attack(scratch)
    before = snapshot(scratch.parent)
    opened.below = scratch.parent
    told = f"{scratch} belongs to uid {EVE}, so hpcflow uses no run in {bad[0].parent}"
    for command in OF_ALL:
        text = said(capfd, *command.split())
        assert text.count(told) <= 1, (command, text)
        if command in LISTING:
            assert good in text
        if command in ("daemon --once", "ledger rebuild") or (command == "ls" and not is_over):
            assert told in text, command
            assert f"scratch: {{trusted_users: [{EVE}]}}" in text
    for command in OF_A_RUN:
        text = said(capfd, *command.split(), bad[0].name)
        assert told in text, (command, text)
    assert not opened.paths, set(opened.paths)
    assert snapshot(scratch.parent) == before


@pytest.mark.parametrize("attack", ATTACKS[:3])
@pytest.mark.parametrize("how", ["its name", "its path", "the settings"])
def test_a_user_whom_the_site_trusts_may_have_made_it(
    place: Home,
    scratch: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[Path], None],
    how: str,
) -> None:
    """As at submission: the head of a project owns its directory."""
    text = (resource_dir("site_configs") / "local.yaml").read_text()
    text = text.replace("scratch:\n", f"scratch:\n  trusted_users: ['{EVE}']\n")
    path = place.path / "sites/local.yaml" if how == "its name" else place.path / "lab.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if how == "the settings":
        monkeypatch.setenv("HPCFLOW_SITE", str(path))
    site = str(path) if how == "its path" else "local"
    run_dir = held_run(place, name="trusted", is_over=False, scratch=scratch, site=site)
    assert read_run(run_dir).site == site
    attack(scratch)
    for command in ("ls", "daemon --once", f"show {run_dir.path.name}", "scratch"):
        assert "belongs to" not in said(capfd, *command.split())
    assert run_dir.path.name in said(capfd, "scratch")


@pytest.mark.parametrize("account", [str(EVE), "default", "other"])
@pytest.mark.parametrize("is_named", [True, False])
def test_the_site_may_trust_the_account_of_a_run(
    place: Home, scratch: Path, capfd: pytest.CaptureFixture[str], account: str, is_named: bool
) -> None:
    text = (resource_dir("site_configs") / "local.yaml").read_text()
    text = text.replace("scratch:\n", "scratch:\n  trusted_users: [$ACCOUNT]\n")
    path = place.path / ("sites/local.yaml" if is_named else "lab.yaml")
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\ndefault_account: '{EVE if account == 'default' else 9}'\n")
    site = "local" if is_named else str(path)
    asked = None if account == "default" else account
    run_dir = held_run(place, name="one", scratch=scratch, site=site, account=asked)
    eves_directory(scratch)
    for command in ("ls", f"show {run_dir.path.name}"):
        assert ("belongs to" in said(capfd, *command.split())) == (account == "other")


def test_ten_thousand_runs_are_a_look_at_each_project(
    place: Home, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def counted(path: Path, *trust: Trust) -> object:
        looks.append(path)
        return foreign_part(path, *trust)

    monkeypatch.setattr("hpcflow.storage.runs.foreign_part", counted)
    monkeypatch.setattr("hpcflow.storage.runs.monotonic", lambda: 0.0)
    place.runs.mkdir()
    projects = [scratch / "hpcflow" / name for name in ("vision", "text")]
    for number in range(200):
        run_id = f"run{number}-20260301-aaaaaaaa"
        (place.runs / run_id).mkdir()
        place.scratch_link(run_id).symlink_to(projects[number % 2] / run_id)
    assert len(list_runs(place)) == 200
    assert sorted(looks) == sorted(projects)


@pytest.mark.parametrize("layout", [*SAFE, *UNSAFE])
@pytest.mark.parametrize("trust", [Trust(), Trust(users=frozenset({EVE}))])
def test_what_a_submission_accepts_is_followed_later(
    tmp_path: Path, layout: Callable[[Path], None], trust: Trust
) -> None:
    path = folders(tmp_path)
    layout(tmp_path)
    if weak_point(path, trust) is None:
        assert foreign_part(path, trust) is None


def test_what_is_left_to_do_for_a_run_is_done_later(
    place: Home, scratch: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = held_run(place, name="later", scratch=scratch).path.name
    said(capfd, "ls")
    marks = [place.unread / run_id, place.unsettled / run_id]
    for mark in marks:
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
        os.utime(mark, (0, 0))
    eves_link(scratch)
    said(capfd, "ls")
    assert all(mark.exists() for mark in marks)
    scratch.unlink()
    (scratch.parent / "of-old").rename(scratch)
    said(capfd, "ls")
    assert not any(mark.exists() for mark in marks)


def test_a_run_is_back_when_the_link_is_gone(place: Home, scratch: Path) -> None:
    run_dir = held_run(place, name="back", scratch=scratch)
    eves_link(scratch)
    with pytest.raises(OSError, match="so hpcflow uses no run in"):
        link_of(place, run_dir.path.name)
    scratch.unlink()
    (scratch.parent / "of-old").rename(scratch)
    assert list_runs(Home(place.path)) == [place.run_dir(run_dir.path)]
