"""What others put, link or swap in a folder of checkpoints while they are adopted or put back."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.adoption import adopter as adopting
from hpcflow.runtime.adoption import copying, foreign
from hpcflow.runtime.adoption.copying import copy_file
from hpcflow.runtime.adoption.foreign import find
from hpcflow.runtime.adoption.rule import AdoptRule
from hpcflow.runtime.files import Written
from hpcflow.runtime.reading import require_no_strange_link
from tests.runtime.adoption.bench import Bench
from tests.untrusted_paths import EVE, is_open_to_others, open_what_is_made_in


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("is_folder", [False, True])
def test_what_others_put_in_its_place_opens_nothing(bench: Bench, is_folder: bool) -> None:
    bench.rule = {"put_back": True}
    content = {"model": b"x", "sub/more": b"y"}
    adopter = bench.watching()
    path = bench.write("step-1", content if is_folder else b"x")
    bench.pass_by(adopter, 10)
    path.rename(bench.out / "aside")
    bench.write("step-1", dict.fromkeys(content, b"theirs") if is_folder else b"theirs")
    for each in (path, *path.rglob("*")):
        each.chmod(0o4777)
        os.chown(each, EVE, EVE)
    bench.program_ended(137)
    bench.next_attempt()
    open_what_is_made_in(bench.out)
    bench.begin()
    assert (path / "model" if is_folder else path).read_bytes() == b"x"
    assert [each for each in (path, *path.rglob("*")) if is_open_to_others(each)] == []


@pytest.mark.parametrize("is_folder", [False, True])
def test_no_mode_is_changed_through_what_others_put_in_the_place_of_the_copy(
    bench: Bench, is_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see its name while it is copied, which takes seconds."""
    bench.rule = {"put_back": True}
    adopter = bench.watching()
    path = bench.write("step-1", {"model": b"x"} if is_folder else b"x")
    bench.pass_by(adopter, 10)
    (path / "model" if is_folder else path).write_bytes(b"")
    for each in (path, *path.rglob("*")):
        each.chmod(0o777)
    private = tmp_path / "private"
    (private / "model").mkdir(parents=True)
    private.chmod(0o700)

    def swapped(*given: Any) -> Written:
        written = copy_file(*given)
        (copy,) = bench.out.glob(".hpcflow-*.tmp")
        copy.rename(bench.out / "aside")
        copy.symlink_to(private)
        return written

    monkeypatch.setattr(copying, "copy_file", swapped)
    bench.program_ended(137)
    bench.next_attempt()
    with suppress(OSError):
        bench.begin()
    assert private.stat().st_mode & 0o777 == 0o700


def swap_in_private(bench: Bench, private: Path) -> None:
    (copy,) = bench.out.glob(".hpcflow-*.tmp")
    copy.rename(bench.out / "aside")
    copy.symlink_to(private)


def swap_in_thesis(bench: Bench, _private: Path) -> None:
    (copy,) = bench.out.glob(".hpcflow-*.tmp")
    copy.rename(bench.out / "aside")
    (bench.out / "thesis").rename(copy)


def swap_old(bench: Bench, _private: Path) -> None:
    (bench.out / "step-1").rename(bench.out / "aside")
    (bench.out / "thesis").rename(bench.out / "step-1")


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("swap", [swap_in_private, swap_in_thesis, swap_old])
def test_nothing_is_written_or_removed_where_others_have_swapped_folders(
    bench: Bench,
    swap: Callable[[Bench, Path], None],
    is_folder: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.rule = {"put_back": True}
    adopter = bench.watching()
    path = bench.write("step-1", {"model": b"x", "more": b"y"} if is_folder else b"x")
    bench.pass_by(adopter, 10)
    (path / "model" if is_folder else path).write_bytes(b"")
    bench.write("thesis", {"text": b"years"})
    bench.out.chmod(0o777)
    private = tmp_path / "private"
    private.mkdir()
    done: list[Path] = []

    def swapped(*given: Any) -> Written:
        written = copy_file(*given)
        if not done:
            swap(bench, private)
        done.append(given[1])
        return written

    monkeypatch.setattr(copying, "copy_file", swapped)
    bench.program_ended(137)
    bench.next_attempt()
    with suppress(OSError):
        bench.begin()
    assert done
    assert list(private.iterdir()) == []
    assert [each.read_bytes() for each in bench.out.rglob("text")] == [b"years"]


def test_a_folder_that_others_put_there_between_two_attempts_is_kept(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.rule = {"put_back": True}
    adopter = bench.watching()
    path = bench.write("step-1", {"model": b"x"})
    bench.pass_by(adopter, 10)
    bench.program_ended(137)
    bench.out.chmod(0o777)
    path.rename(bench.out / "aside")
    bench.write("step-1", {"text": b"years"})
    bench.next_attempt()
    bench.begin()
    assert (path / "model").read_bytes() == b"x"
    assert [each.read_bytes() for each in bench.out.rglob("text")] == [b"years"]
    assert "'text', which the checkpoint lacks: not removed" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="gives links to another user")
@pytest.mark.parametrize(
    "where",
    (
        *("folder", "above", "part", "glob", "own", "theirs"),
        *("to-mine", "to-mine-by-two", "above-mine", "to-what-is-public", "to-mine-new", "to-root"),
        "mine-in-theirs",
    ),
)
def test_links_of_other_users_lead_nowhere(bench: Bench, tmp_path: Path, where: str) -> None:
    """What they lead to would be copied, and replaced when it is put back."""
    private, shared = tmp_path / "private", tmp_path / "shared"
    for folder in (private, shared, shared / "x"):
        folder.mkdir()
    (private / "step-7").write_bytes(b"secret")
    link = shared / "x" / "out" if where == "glob" else shared / "out"
    link.symlink_to(tmp_path if where in ("above", "above-mine") else private)
    if where != "own":
        os.lchown(link, EVE, EVE)
    if where not in ("folder", "above", "part", "glob", "own"):
        os.chown(shared, EVE, EVE)
    if where == "mine-in-theirs":
        (private / "me").mkdir()
        (private / "me" / "step-7").write_bytes(b"mine")
    if where == "to-root":
        link.unlink()
        link.symlink_to("/")
        os.lchown(link, EVE, EVE)
    if where in (
        "theirs",
        "mine-in-theirs",
    ):  # such as a link of a project's owner, in a folder of theirs
        os.chown(private, EVE, EVE)
    if where in ("above-mine", "to-what-is-public"):  # such as /scratch and /tmp
        other = tmp_path if where == "above-mine" else private
        os.chown(other, EVE + 1, EVE + 1)
        other.chmod(0o1777)
    if where == "to-mine-by-two":
        link.rename(shared / "second")
        link.symlink_to("second")
        os.lchown(link, EVE, EVE)
    below = {
        "above": link / "private",
        "above-mine": link / "private",
        "to-mine-new": link / "new",
        "to-root": link / str(private).lstrip("/"),
        "mine-in-theirs": link / "me",
    }
    folder = {**below, "part": shared, "glob": shared}.get(where, link)
    bench.out = folder
    pattern = {"part": "out/step-*", "glob": "*/out/step-*"}.get(where, "step-*")
    rule, said = AdoptRule(folder, pattern), list[str]()
    if where in ("own", "theirs", "mine-in-theirs"):
        assert find(rule, said.append) == [folder / "step-7"]
    elif where in ("part", "glob"):
        assert find(rule, said.append) == []
        assert "it is a link of another user" in said[0]
    else:
        with pytest.raises(OSError, match="it is a link of another user"):
            find(rule, said.append)
    assert (private / "step-7").read_bytes() == b"secret"


class Teammate:
    """Puts a link to a private folder of the user in the place of what is shared, and back."""

    def __init__(self, bench: Bench, private: Path, what: str) -> None:
        self.private = private / "step-7" / "inner" / "model"
        self.private.parent.mkdir(parents=True)
        self.private.write_bytes(b"secret")
        names = {"folder": "", "checkpoint": "step-7", "inner": "step-7/inner"}
        self.place, self.target = bench.out / names[what], private / names[what]
        self.aside = self.place.with_name("aside")
        self.has_swapped = False

    def swap(self) -> None:
        if not self.has_swapped:
            self.has_swapped = True
            self._keeping_time(lambda: self.place.rename(self.aside))
            self._keeping_time(lambda: self.place.symlink_to(self.target))
            os.lchown(self.place, EVE, EVE)

    def swap_back(self) -> None:
        if self.place.is_symlink():
            self._keeping_time(self.place.unlink)
            self._keeping_time(lambda: self.aside.rename(self.place))

    def _keeping_time(self, act: Callable[[], object]) -> None:
        before = self.place.parent.stat()
        act()
        os.utime(self.place.parent, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives links to another user")
@pytest.mark.parametrize("what", ["folder", "checkpoint", "inner"])
@pytest.mark.parametrize("when", ["found", "looked at", "taken"])
@pytest.mark.parametrize("renamed", [True, False])
def test_what_others_swap_at_any_moment_is_not_adopted(
    bench: Bench,
    what: str,
    when: str,
    renamed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a loop they do so some hundred thousand times a second, and the first time wins."""
    eve = Teammate(bench, tmp_path / "private", what)
    bench.rule = {"renamed": renamed}
    adopter = bench.watching()
    bench.write("step-7", {"a": b"x", "inner/model": b"y"})

    def after(module: Any, name: str) -> None:
        original = getattr(module, name)

        def called(*given: Any, **named: Any) -> Any:
            found = original(*given, **named)
            eve.swap()
            return found

        monkeypatch.setattr(module, name, called)

    def during(module: Any, name: str) -> None:
        original = getattr(module, name)

        def called(*given: Any, **named: Any) -> Any:
            eve.swap()
            try:
                return original(*given, **named)
            finally:
                eve.swap_back()

        monkeypatch.setattr(module, name, called)

    if not renamed:
        adopter.look()
        bench.clock.now_s += 10
    if when == "found":
        after(foreign, "require_no_strange_link")
    elif when == "looked at":
        during(adopting, "look")
    else:
        during(copying, "take")
    adopter.look()
    assert eve.has_swapped
    files = [path for path in bench.folder.path.rglob("*") if path.is_file()]
    assert not any(b"secret" in path.read_bytes() for path in files)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives links to another user")
@pytest.mark.parametrize("is_folder", [False, True])
def test_nothing_is_put_back_behind_a_link_that_others_make_meanwhile(
    bench: Bench, is_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.rule = {"put_back": True}
    adopter = bench.watching()
    path = bench.write("step-7", {"inner/model": b"x"} if is_folder else b"x")
    bench.pass_by(adopter, 10)
    eve = Teammate(bench, tmp_path / "private", "folder")
    (path / "inner/model" if is_folder else path).write_bytes(b"")
    original = require_no_strange_link

    def checked(folder: Path) -> None:
        original(folder)
        eve.swap()

    monkeypatch.setattr(adopting, "require_no_strange_link", checked)
    bench.program_ended(137)
    bench.next_attempt()
    with pytest.raises(OSError, match="it is a link of another user"):
        bench.begin()
    assert eve.private.read_bytes() == b"secret"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("kind", ["file", "link", "fifo", "folder"])
@pytest.mark.parametrize("marker", [".done", ".done.json"])
@pytest.mark.parametrize("is_alive", [True, False])
def test_a_marker_of_others_proves_nothing(
    bench: Bench, marker: str, kind: str, *, is_alive: bool
) -> None:
    """The program writes half a checkpoint, and another user says that it is whole."""
    bench.rule = {"marker": marker}
    adopter = bench.watching()
    bench.out.chmod(0o1777)
    bench.write("step-7", b"half a chec")
    path = bench.out / f"step-7{marker}"
    made: dict[str, Callable[[], object]] = {
        "file": lambda: path.write_text("{}"),
        "link": lambda: path.symlink_to(bench.write("mine.json", b"{}")),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    made[kind]()
    os.lchown(path, EVE, EVE)
    if is_alive:
        bench.pass_by(adopter, 11)
        assert bench.adopted() == {}
        return
    bench.program_ended(137)
    bench.next_attempt()
    assert bench.begin() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_names_that_others_make_up_fill_neither_log_nor_memory(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.rule = {}
    adopter = bench.watching()
    bench.out.chmod(0o1777)
    for number in range(300):
        path = bench.write(f"step-{number}", b"")
        os.chown(path, EVE, EVE)
    for _ in range(2):
        adopter.look()
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 101
    assert said[-1] == "hpcflow: no more warnings of this kind are shown"
