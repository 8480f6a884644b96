"""Reading a repository executes nothing that it names, and never hangs."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.provenance import git as asked
from hpcflow.provenance import snapshot
from hpcflow.provenance.code_state import MAX_DIFF_BYTES, code_state
from hpcflow.provenance.snapshot import take
from tests.cli.desk import Desk

#: Keys whose value is a program, a file that git reads as configuration, or where it looks.
_PROGRAMS = re.compile(
    r"command|cmd|program|editor|pager|helper|fsmonitor|hook|textconv|clean$|smudge|process|external"
    r"|askpass|gitproxy|\.driver$|path$|uploadpack$|receivepack$|tool$|include|diff\.ignoresub|vcs$",
    re.IGNORECASE,
)
#: Filled in by hand: `git help --config` has no `filter.<driver>.process`.
_MORE = ("filter.<driver>.process", "filter.<driver>.required", "core.attributesFile")


def git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false")
    done = subprocess.run(
        ["git", *identity, *args], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q")
    for name in ("a.py", "b.bin", "c.txt"):
        (folder / name).write_text("one\n")
    (folder / "sub").mkdir()
    (folder / "sub/d.py").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "a.py").write_text("two\n")
    code_state.cache_clear()
    yield folder
    code_state.cache_clear()


def set_traps(folder: Path, marker: Path) -> list[str]:
    """Give every key that can name a program one that leaves ``marker``; returns the keys."""
    trap = folder.parent / "trap.sh"
    trap.write_text(f'#!/bin/sh\necho "$0 $@" >> {marker}\ncat 2>/dev/null\n')
    trap.chmod(0o755)
    (folder / ".gitattributes").write_text(
        "* filter=evil diff=evil merge=evil\n*.bin diff=evil working-tree-encoding=UTF-16\n"
    )
    hooks = folder / ".git/hooks"
    names = git(folder, "help", "--config").split()
    keys = [name for name in (*names, *_MORE) if _PROGRAMS.search(name) and "Version" not in name]
    said = []
    for key in keys:
        section, _, last = re.sub(r"<[^>]*>", "evil", key).rpartition(".")
        first, _, middle = section.partition(".")
        if first in ("include", "includeIf"):
            continue  # it would have to be a configuration, which is one more way to the same keys
        value = str(hooks) if last == "hooksPath" else str(trap)
        sane = ["git", "-c", f"{section}.{last}={value}", "diff", "--stat"]
        if b"bad" in subprocess.run(sane, cwd=folder, capture_output=True, timeout=120).stderr:
            continue  # true or false, or a number
        head = f'[{first} "{middle}"]' if middle else f"[{first}]"
        said.append(f"{head}\n\t{last} = {value}\n")
    said.append('[submodule "evil"]\n\tupdate = !touch\n')
    said.extend(
        f"[pager]\n\t{name} = {trap}\n[alias]\n\t{name} = !{trap}\n"
        for name in ("diff", "config", "rev-parse", "status")
    )
    marker.unlink(missing_ok=True)
    with (folder / ".git/config").open("a") as file:
        file.write("".join(said))
    samples = [each.name.removesuffix(".sample") for each in hooks.iterdir()]
    for name in (*samples, "post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (hooks / name).write_text(trap.read_text())
        (hooks / name).chmod(0o755)
    return keys


def test_no_program_of_a_repository_is_executed(
    repository: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "executed"
    keys = set_traps(repository, marker)
    assert len(keys) > 40
    assert "core.fsmonitor" in keys
    subprocess.run(["git", "diff"], cwd=repository, capture_output=True, timeout=120)
    assert marker.exists(), "the traps do not work"
    marker.unlink()
    (repository / "c.txt").write_text("changed\n")

    state = code_state(repository)
    assert not marker.exists(), marker.read_text()
    assert state.commit == git(repository, "-c", "core.fsmonitor=false", "rev-parse", "HEAD")[:-1]
    assert state.is_dirty
    assert state.diff is not None
    assert b"+two" in state.diff
    assert b"+changed" in state.diff
    marker.unlink(missing_ok=True)

    desk = Desk(repository, capfd)
    config = desk.config("small", "true")
    for words in (["render", config], ["run", config, "--dry-run"], ["run", config, "--wait"]):
        code_state.cache_clear()
        desk.say(*words)
        assert not marker.exists(), marker.read_text()


def test_the_programs_of_an_included_file_are_not_executed_either(
    repository: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "executed"
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {marker}\n")
    trap.chmod(0o755)
    (tmp_path / "more").write_text(f"[core]\n\tfsmonitor = {trap}\n")
    git(repository, "config", "include.path", str(tmp_path / "more"))
    assert code_state(repository).is_dirty
    assert not marker.exists()


def test_a_submodule_is_not_asked(repository: Path, tmp_path: Path) -> None:
    other, marker = tmp_path / "other", tmp_path / "executed"
    other.mkdir()
    git(other, "init", "-q")
    (other / "x").write_text("one\n")
    git(other, "add", ".")
    git(other, "commit", "-qm", "first")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "mod")
    git(repository, "commit", "-qm", "second")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {marker}\n")
    trap.chmod(0o755)
    git(repository / "mod", "config", "core.fsmonitor", str(trap))
    (repository / "mod/x").write_text("two\n")
    subprocess.run(["git", "diff"], cwd=repository, capture_output=True, timeout=120)
    assert marker.exists(), "the trap does not work"
    marker.unlink()
    assert code_state(repository).commit
    assert not marker.exists()
    # A submodule is a work tree of its own, whose configuration names its folder.
    git(repository / "mod", "config", "core.fsmonitor", "false")
    assert b"+two" in (code_state(repository / "mod").diff or b"")


def test_another_work_tree_is_not_looked_at(repository: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "a.py").write_text("mine alone\n")
    git(repository, "config", "core.worktree", str(private))
    assert code_state(repository).diff is None


def test_every_layout_of_git_is_understood(repository: Path, tmp_path: Path) -> None:
    sub = code_state(repository / "sub")
    assert (sub.is_dirty, sub.diff) == (False, None)
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "tree/c.txt").write_text("two\n")
    assert b"+two" in (code_state(tmp_path / "tree").diff or b"")
    git(repository, "update-index", "--split-index")
    code_state.cache_clear()
    assert b"+two" in (code_state(repository).diff or b"")
    git(repository, "checkout", "-q", "a.py")
    code_state.cache_clear()
    assert code_state(repository).is_dirty is False
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q", "--object-format=sha256")
    assert code_state(fresh).commit is None
    (fresh / "x").write_text("one\n")
    git(fresh, "add", ".")
    git(fresh, "commit", "-qm", "first")
    (fresh / "x").write_text("two\n")
    code_state.cache_clear()
    assert b"+two" in (code_state(fresh).diff or b"")
    assert code_state(tmp_path).commit is None


def index_of(*names: str) -> bytes:
    """An index as git writes it, but git refuses such names."""
    entries = b""
    for name in sorted(map(os.fsencode, names)):
        facts = (0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0)
        entry = struct.pack(">10I20sH", *facts, b"\1" * 20, len(name)) + name
        entries += entry + b"\0" * (8 - len(entry) % 8)
    content = b"DIRC" + struct.pack(">II", 2, len(names)) + entries
    return content + hashlib.sha1(content).digest()


@pytest.mark.parametrize(
    "name",
    ["../private", "{}/private", "../priv\u00e4t \n", "sub/../../private", ".git/config", ".GIT/x"],
)
def test_no_file_outside_of_the_work_tree_is_read(
    repository: Path, tmp_path: Path, name: str
) -> None:
    """A teammate who can write to the index, or the author of a copied one, has named it there."""
    for file in ("private", "priv\u00e4t \n", "code/.git/config", "code/.git/x"):
        (tmp_path / file).write_text("hunter2\n")
    (repository / ".GIT").symlink_to(".git")
    git_dir = repository / ".git"
    (git_dir / "index").write_bytes(index_of("a.py", name.format(tmp_path)))
    found = asked.Repository("HEAD", git_dir, git_dir / "objects", repository, {})
    (head,) = (git_dir / "refs/heads").iterdir()
    try:
        diff = asked.difference(
            replace(found, commit=head.read_text().strip()), repository, MAX_DIFF_BYTES
        )
    except asked.GitError as error:
        assert "git's index names a file elsewhere" in str(error)
    else:
        assert b"hunter2" not in diff
        assert b"+two" in diff


def test_names_that_only_look_like_others_are_recorded(repository: Path) -> None:
    for name in ("..a.py", ".github", "a..", ".gitattributes", 'q"..', "\u00e4", "t\t.."):
        (repository / name).write_text("new\n")
    git(repository, "add", ".")
    state = code_state(repository)
    assert state.warnings == ()
    diff = (state.diff or b"").decode()
    assert diff.startswith("diff --git ")
    assert diff.count("+new") == 7


def test_lines_that_end_as_on_windows_are_no_change(repository: Path) -> None:
    git(repository, "config", "core.autocrlf", "true")
    (repository / "a.py").write_bytes(b"one\r\n")
    os.utime(repository / "a.py", (1, 1))
    assert code_state(repository).is_dirty is False


def test_variables_of_git_do_not_lead_elsewhere(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "executed"
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {marker}")
    assert b"+two" in (code_state(repository).diff or b"")
    assert not marker.exists()


@pytest.mark.parametrize(
    "place", [".git/index", ".git/config", ".git/HEAD", "c.txt", ".gitattributes"]
)
def test_a_pipe_does_not_hang_it(
    repository: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "_TIMEOUT_S", 1.0)
    (repository / place).unlink(missing_ok=True)
    os.mkfifo(repository / place)
    state = code_state(repository)
    if place == ".git/index":
        assert state.commit
        assert state.is_dirty is None
        assert "did not answer within 1 s" in state.warnings[0]


def test_a_large_difference_is_not_read_into_memory(repository: Path) -> None:
    with (repository / "a.py").open("w") as file:
        file.writelines(f"{number}\n" for number in range(3_000_000))
    state = code_state(repository)
    assert (state.is_dirty, state.diff) == (True, None)
    found = asked.find_repository(repository)
    assert found is not None
    assert len(asked.difference(found, repository, MAX_DIFF_BYTES)) == MAX_DIFF_BYTES + 1


def test_what_is_no_text_is_named_only(repository: Path) -> None:
    (repository / "b.bin").write_bytes(b"\0hunter2")
    diff = code_state(repository).diff or b""
    assert b"Binary files a/b.bin and b/b.bin differ" in diff
    assert b"hunter2" not in diff


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_repository_of_another_user_is_refused_with_a_way_out(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (repository, repository / ".git"):
        os.chown(path, 12345, 12345)
    (repository / "below").mkdir()
    state = code_state(repository / "below")
    assert (state.commit, state.diff) == (None, None)
    assert "belongs to another user" in state.warnings[0]
    assert f"safe.directory {repository}" in state.warnings[0]
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(repository / "trust"))
    (repository / "trust").write_text(f"[safe]\n\tdirectory = {repository}\n")
    code_state.cache_clear()
    assert code_state(repository).commit


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_people_are_told_that_the_commit_is_not_recorded(
    repository: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    desk = Desk(repository, capfd)
    config = desk.config("small", "true")
    for path in (repository, repository / ".git"):
        os.chown(path, 12345, 12345)
    assert "warning: the git commit of" in desk.error("run", config, "--dry-run", code=0)


def sparse_ref(repository: Path) -> None:
    (head,) = (repository / ".git/refs/heads").iterdir()
    os.truncate(head, 4 << 30)


def sparse_head(repository: Path) -> None:
    os.truncate(repository / ".git/HEAD", 4 << 30)


def long_text(repository: Path) -> None:
    with (repository / "a.py").open("w") as file:
        for _ in range(150):
            file.write("abcdefg\n" * (1 << 17))
    git(repository, "commit", "-qam", "large")
    with (repository / "a.py").open("a") as file:
        file.write("more\n")


@pytest.mark.parametrize("make_large", [sparse_ref, sparse_head, long_text])
def test_git_takes_no_gigabytes(repository: Path, make_large: Callable[[Path], None]) -> None:
    make_large(repository)
    asked_for = (
        "import resource, sys; from pathlib import Path;"
        "from hpcflow.provenance.code_state import code_state;"
        "print(code_state(Path(sys.argv[1])).warnings);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked_for, str(repository)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    warnings, kib = done.stdout.splitlines()
    assert int(kib) < 1_300_000
    assert "not recorded: git needs more than 1 GiB of memory" in warnings


@pytest.mark.parametrize("stack_bytes", [resource.RLIM_INFINITY, 8 << 20, 300 << 20, 4 << 30])
def test_the_stacks_of_threads_take_none_of_gits_memory(repository: Path, stack_bytes: int) -> None:
    """git looks at 500 files in a thread, and reads 10,000 names of an index in one."""
    for number in range(2_000):
        (repository / f"{number}.txt").write_text("one\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "many")
    (repository / "a.py").write_text("three\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY and not 0 <= stack_bytes <= hard:
        stack_bytes = hard  # the most that is allowed here
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (stack_bytes, hard))
        state = code_state(repository)
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
    assert state.warnings == ()
    assert state.diff is not None
    assert b"+three" in state.diff


def test_git_reads_no_configuration_in_a_folder_where_others_can_write(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full /tmp, Python makes temporary directories in the working directory."""
    repository.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(repository))
    state = code_state(repository)
    assert state.diff is None
    assert "no temporary directory can be made: every user can write to" in state.warnings[0]


def test_no_place_for_a_temporary_directory_is_a_warning(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "tempdir", None)
    (warning,) = code_state(repository).warnings
    assert "not recorded: no temporary file can be made: No usable temporary" in warning


# --- all files of a work tree -------------------------------------------------------------------


def names_in(folder: Path) -> set[str]:
    """The names that belong to the code, ignored ones in brackets."""
    listing = asked.list_files(folder, asked.find_repository(folder))
    return {*listing.files, *(f"({name})" for name in listing.ignored)}


def test_all_files_are_listed_but_for_those_that_are_ignored(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".gitignore").write_text("*.log\ndata/\n")
    (repository / "data").mkdir()
    for name in ("data/one.csv", "new.py", "b.log", "sub/excluded.txt", "ours.txt"):
        (repository / name).write_text("x\n")
    (repository / ".git/info/exclude").write_text("excluded.txt\n")
    (tmp_path / "settings/git").mkdir(parents=True)
    (tmp_path / "settings/git/ignore").write_text("ours.txt\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (repository / "c.txt").unlink()
    files = {"a.py", "b.bin", "sub/d.py", "new.py", ".gitignore", "c.txt"}
    ignored = {"(data/)", "(b.log)", "(sub/excluded.txt)", "(ours.txt)"}
    assert names_in(repository) == files | ignored


def test_a_folder_without_a_repository_is_listed_alike(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "b.log").touch()
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert names_in(tmp_path) == {"train.py", ".gitignore", "(b.log)"}


def test_listing_executes_nothing_that_a_repository_names(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    set_traps(repository, marker)
    names_in(repository)
    take(repository, is_mirrored=True)
    assert not marker.exists()


@pytest.mark.parametrize("nested", ["submodule", "untracked"])
def test_a_repository_in_the_work_tree_is_a_part_of_the_code_and_executes_nothing(
    repository: Path, tmp_path: Path, nested: str
) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "model.py").write_text("one\n")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "first")
    (inner / "new.py").write_text("two\n")
    if nested == "submodule":
        git(repository, "add", "inner")
        git(repository, "commit", "-qm", "second")
    marker = tmp_path / "executed"
    set_traps(inner, marker)
    files = take(repository, is_mirrored=False).tree.files
    assert files["inner/model.py"].data == b"one\n"
    assert files["inner/new.py"].data == b"two\n"
    assert not any(".git/" in name for name in files)
    assert not marker.exists()


def test_a_file_behind_a_link_and_one_that_cannot_be_a_file_are_no_code(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/d.py").write_text("secret\n")
    (repository / "sub/d.py").unlink()
    (repository / "sub").rmdir()
    (repository / "sub").symlink_to(tmp_path / "private")  # the index has sub/d.py
    os.mkfifo(repository / "pipe")
    for name in ("a\nb", "a\\b", "-"):  # the last is what sha256sum calls its input
        (repository / name).touch()
    (repository / "inner").symlink_to("a.py")
    tree = take(repository, is_mirrored=False).tree
    assert set(tree.files) == {"a.py", "b.bin", "c.txt"}
    assert tree.links == {"sub": str(tmp_path / "private"), "inner": "a.py"}


@pytest.mark.parametrize("target", ["{top}/a.py", "../../{name}/a.py", "../a.py", "{alias}/a.py"])
def test_a_link_within_the_work_tree_leads_to_the_copy_however_it_is_written(
    repository: Path, tmp_path: Path, target: str
) -> None:
    alias = tmp_path / "alias"
    alias.symlink_to(repository)
    named = target.format(top=repository, name=repository.name, alias=alias)
    (repository / "sub/link.py").symlink_to(named)
    taken = take(repository, is_mirrored=False)
    assert taken.tree.links == {"sub/link.py": "../a.py"}
    assert "sub/link.py" in taken.names


def test_links_to_what_git_ignores_have_a_limit_that_is_told(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_MAX_LINKS", 2)
    (repository / ".gitignore").write_text("*.log\n*.so\n")
    for name in ("a.log", "b.log", "c.log", "x.so", "y.so"):
        (repository / name).touch()
    taken = take(repository, is_mirrored=False)
    assert (set(taken.tree.links), taken.warnings) == ({"x.so", "y.so"}, ())
    (repository / "z.so").touch()
    taken = take(repository, is_mirrored=False)
    assert set(taken.tree.links) == {"x.so", "y.so"}
    assert "has no links to 1 file that git ignores" in taken.warnings[0]


def test_the_code_of_a_linked_and_of_a_sparse_work_tree_is_what_is_on_disk(
    repository: Path, tmp_path: Path
) -> None:
    (repository / ".git/info/exclude").write_text("excluded.txt\n")
    git(repository, "config", "core.autocrlf", "true")
    git(repository, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = tmp_path / "linked"
    (linked / "a.py").write_bytes(b"one\r\n")
    for name in ("new.py", "excluded.txt"):
        (linked / name).touch()
    tree = take(linked, is_mirrored=False).tree
    assert set(tree.files) == {"a.py", "b.bin", "c.txt", "new.py", "sub/d.py"}
    assert tree.files["a.py"].data == b"one\r\n"
    assert set(tree.links) == {"excluded.txt"}
    git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "nothing")
    assert set(take(repository, is_mirrored=False).tree.files) == {"a.py", "b.bin", "c.txt"}


def test_an_index_that_names_a_file_elsewhere_is_refused_by_the_snapshot(
    repository: Path,
) -> None:
    index = repository / ".git/index"
    data = index.read_bytes().replace(b"sub/d.py", b"../d.pyx")
    content = data[:-20]
    index.write_bytes(content + hashlib.sha1(content, usedforsecurity=False).digest())
    with pytest.raises(asked.GitError):
        names_in(repository)


@pytest.mark.parametrize("is_repository", [False, True])
def test_where_git_is_not_installed_a_plain_folder_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_repository: bool
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/train.py").touch()
    (tmp_path / "data").symlink_to("/data")
    if is_repository:
        git(tmp_path, "init", "-q")
    monkeypatch.setenv("PATH", str(tmp_path))
    if is_repository:  # what it ignores cannot be told
        with pytest.raises(asked.GitError, match="cannot be started"):
            take(tmp_path, is_mirrored=False)
    else:
        tree = take(tmp_path, is_mirrored=False).tree
        assert (set(tree.files), tree.links) == ({"lib/train.py"}, {"data": "/data"})


@pytest.mark.usefixtures("home")
def test_a_repository_that_git_refuses_lets_the_code_be_read_live(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    desk = Desk(tmp_path, capfd)
    (desk.folder / "train.py").write_text("print(1)\n")
    config = desk.folder / "run.yaml"
    config.write_text("name: small\nscript: train.py\nlaunch: {framework: none, launcher: none}\n")

    def refused(*_: object) -> None:
        raise asked.GitError("git did not answer within 10 s")

    monkeypatch.setattr("hpcflow.provenance.snapshot.list_files", refused)
    assert "when it starts: git did not answer" in desk.error("run", str(config), "--wait", code=0)
