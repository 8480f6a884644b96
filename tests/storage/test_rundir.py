"""A run directory is there wholly or not at all, for its owner only, and frees its place."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcflow.errors import InputError, ScratchError, StorageError
from hpcflow.model.run import Run, code_place
from hpcflow.storage import runtime_copy
from hpcflow.storage.code_snapshot import CodeFile, CodeTree, remove_unused
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run, discard_run, list_runs, read_run
from tests.storage.runs import make_run


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def test_a_run_is_frozen_and_found(tmp_path: Path) -> None:
    run, home = make_run(tmp_path / "scratch"), Home(tmp_path / "home")

    run_dir = create_run(run, home, code={"changes.diff": b"+1", "new/model.py": b"x = 1\n"})

    assert run_dir.path == Path(run.run_dir)
    assert read_run(run_dir) == run
    assert json.loads(run_dir.params_json.read_text()) == {"lr": 0.1}
    assert (run_dir.code / "new/model.py").read_bytes() == b"x = 1\n"
    assert list_runs(home) == [run_dir]


def test_nobody_else_can_look_inside(tmp_path: Path) -> None:
    run = make_run(tmp_path / "scratch")
    os.umask(os.umask(0))  # whatever the umask is, it opens nothing
    create_run(run, Home(tmp_path / "home"), code={"a/b.diff": b""})

    for root in (tmp_path / "scratch", tmp_path / "home"):
        for path in (root, *root.rglob("*")):
            if not path.is_symlink():
                assert path.stat().st_mode & 0o077 == 0, path


def test_the_runtime_in_it_needs_nothing_of_the_installation(tmp_path: Path) -> None:
    run_dir = create_run(make_run(tmp_path / "s"), Home(tmp_path / "home"))
    subprocess.run(["rm", "-rf", str(tmp_path / "s/hpcflow/.runtime")], check=True)

    done = subprocess.run(
        [sys.executable, "-S", "-c", "import hpcflow.runtime as r; print(*r.__path__)"],
        env={"PYTHONPATH": str(run_dir.runtime)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(run_dir.runtime))


@pytest.mark.parametrize(("version", "whole"), [("0.1.0", True), ("9.9.9", False)])
def test_beside_a_whole_hpcflow_of_its_version_the_copy_steps_aside(
    tmp_path: Path, version: str, whole: bool
) -> None:
    """It comes first on PYTHONPATH, also twice where a run was sent from inside a run."""
    runs = [create_run(make_run(tmp_path / str(n)), Home(tmp_path / "home")) for n in range(2)]
    installed = tmp_path / "site-packages/hpcflow"
    (installed / "launch").mkdir(parents=True)
    (installed / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (installed / "launch/__init__.py").write_text("")
    paths = [*(run.runtime for run in runs), installed.parent]
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import hpcflow; print(hpcflow.__file__)"],
        env={"PYTHONPATH": ":".join(map(str, paths))},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    expected = installed if whole else runs[0].runtime / "hpcflow"
    assert done.stdout.strip() == str(expected / "__init__.py")


def test_runs_share_the_bytes_of_the_runtime(tmp_path: Path) -> None:
    first, second = (create_run(make_run(tmp_path), Home(tmp_path / "home")) for _ in range(2))
    name = "runtime/hpcflow/__init__.py"
    assert (first.path / name).samefile(second.path / name)
    assert (first.path / name).stat().st_mode & 0o777 == 0o400


def test_where_links_do_not_work_the_runtime_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    monkeypatch.setattr(os, "link", no_links)
    run_dir = create_run(make_run(tmp_path), Home(tmp_path / "home"))
    assert (run_dir.runtime / "hpcflow/__init__.py").stat().st_nlink == 1


def test_a_runtime_that_others_can_write_is_not_linked(tmp_path: Path) -> None:
    shared = tmp_path / "hpcflow/.runtime"
    create_run(make_run(tmp_path), Home(tmp_path / "home"))
    shared.chmod(0o777)

    run_dir = create_run(make_run(tmp_path), Home(tmp_path / "home"))

    assert (run_dir.runtime / "hpcflow/__init__.py").stat().st_nlink == 1


def test_a_link_in_the_place_of_the_shared_runtime_is_not_followed(tmp_path: Path) -> None:
    elsewhere, shared = tmp_path / "elsewhere", tmp_path / "hpcflow/.runtime"
    elsewhere.mkdir()
    shared.parent.mkdir(mode=0o700)
    shared.symlink_to(elsewhere)

    run_dir = create_run(make_run(tmp_path), Home(tmp_path / "home"))

    assert (run_dir.runtime / "hpcflow/__init__.py").stat().st_nlink == 1
    assert list(elsewhere.iterdir()) == []


def test_a_damaged_shared_runtime_is_not_linked(tmp_path: Path) -> None:
    create_run(make_run(tmp_path), Home(tmp_path / "home"))
    (copy,) = (tmp_path / "hpcflow/.runtime").iterdir()
    (copy / "__init__.py").unlink()

    run_dir = create_run(make_run(tmp_path), Home(tmp_path / "home"))

    assert (run_dir.runtime / "hpcflow/__init__.py").stat().st_size > 0


def test_every_call_that_a_full_disk_can_fail_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _count_calls(tmp_path / "dry", monkeypatch)
    assert calls > 20
    for number in range(calls):
        runtime_copy._installed.cache_clear()
        root = tmp_path / str(number)
        root.mkdir()
        with monkeypatch.context() as patch:
            _fail_call(patch, number)
            with pytest.raises(ScratchError, match="No space left on device") as caught:
                create_run(make_run(root / "scratch"), Home(root / "home"), code={"d": b"1"})
        assert isinstance(caught.value, InputError)
        assert caught.value.exit_code == 2
        assert list_runs(Home(root / "home")) == []
        assert list(root.iterdir()) == [], f"call {number}"


_CALLS = ("write", "fsync", "mkdir", "rename", "symlink")


def _count_calls(root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    root.mkdir()
    with monkeypatch.context() as patch:
        seen = _fail_call(patch, -1)
        create_run(make_run(root / "scratch"), Home(root / "home"), code={"d": b"1"})
    return len(seen)


def _fail_call(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """From system call ``number`` on the disk is full: nothing new can be written."""
    seen: list[str] = []
    for name in _CALLS:
        real = getattr(os, name)

        def call(*args: object, name: str = name, real: object = real, **options: object) -> object:
            seen.append(name)
            if number >= 0 and len(seen) > number:
                raise OSError(errno.ENOSPC, "No space left on device")
            assert callable(real)
            return real(*args, **options)

        patch.setattr(os, name, call)
    return seen


@pytest.mark.parametrize("scratch", ["/sys/scratch", "/dev/null/scratch", "/tmp/" + "x" * 300])
def test_a_scratch_that_cannot_be_used_is_bad_input(tmp_path: Path, scratch: str) -> None:
    with pytest.raises(ScratchError, match="cannot make the run directory below") as caught:
        create_run(make_run(Path(scratch)), Home(tmp_path / "home"))
    assert "→" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_used_takes_the_run_back_and_is_named(tmp_path: Path) -> None:
    said = "cannot write the record of the run in /dev/null/runs"
    with pytest.raises(ScratchError, match=said) as caught:
        create_run(make_run(tmp_path / "s"), Home(Path("/dev/null")))
    assert str(caught.value).startswith("HPCFLOW_HOME: ")
    assert not (tmp_path / "s").exists()


def test_a_run_that_fails_leaves_the_runtime_that_others_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = create_run(make_run(tmp_path), Home(tmp_path / "home"))
    calls = len(files_below(tmp_path))
    with monkeypatch.context() as patch:
        _fail_call(patch, 3)
        with pytest.raises(ScratchError):
            create_run(make_run(tmp_path), Home(tmp_path / "home"))
    assert len(files_below(tmp_path)) == calls
    assert (whole.path / "runtime/hpcflow/__init__.py").stat().st_nlink == 2


def test_code_cannot_leave_its_folder(tmp_path: Path) -> None:
    for name in ("../run.json", "/tmp/x", ""):
        with pytest.raises(StorageError, match="cannot store the code file"):
            create_run(make_run(tmp_path / "s"), Home(tmp_path / "h"), code={name: b""})
    assert list_runs(Home(tmp_path / "h")) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (b'{"format": 1}', "damaged"),
        (b'{"format": 2}', "newer hpcflow"),
        (b"[" * 100_000, "damaged"),
    ],
)
def test_a_run_json_that_is_not_ours_is_a_clear_error(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StorageError, match=says):
        read_run(RunDir(tmp_path))


@pytest.mark.parametrize("what", ["the record", "run.json", "a copy"])
def test_what_was_frozen_of_another_run_is_damage(tmp_path: Path, what: str) -> None:
    home = Home(tmp_path / "home")
    mine, other = (create_run(make_run(tmp_path / "scratch"), home) for _ in range(2))
    if what == "a copy":
        mine.run_json.write_bytes(other.run_json.read_bytes())
    elif what == "run.json":
        swap(mine.run_json, other.run_json)
    else:
        assert mine.record and other.record
        swap(Path(mine.record), Path(other.record))
    for link in list_runs(home) if what != "a copy" else [mine]:
        with pytest.raises(
            StorageError, match=r"run.json is damaged: it belongs to another run: digits"
        ):
            read_run(link)


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def test_a_purged_run_json_points_to_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="hpcflow show"):
        read_run(RunDir(tmp_path))


def test_a_discarded_run_is_gone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    run_dir = create_run(make_run(tmp_path), home)
    discard_run(run_dir, home)
    discard_run(run_dir, home)
    assert not run_dir.path.exists()
    assert list_runs(home) == []


# Makes run after run until it is killed; says so once the first one is there.
MAKER = """
import sys
from pathlib import Path
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import create_run
from tests.storage.runs import make_run
root = Path(sys.argv[1])
while True:
    create_run(make_run(root / "s"), Home(root / "home"), code={"changes.diff": b"1" * 1000})
    print("made", flush=True)
"""


def test_killed_anywhere_every_run_that_can_be_found_is_whole(tmp_path: Path) -> None:
    for made_before in range(6):
        maker = subprocess.Popen(
            [sys.executable, "-c", MAKER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert maker.stdout is not None
        for _ in range(made_before + 1):
            maker.stdout.readline()
        maker.kill()
        maker.wait()
        maker.stdout.close()

    runs = list_runs(Home(tmp_path / "home"))
    assert len(runs) >= 21
    for run_dir in runs:
        assert read_run(run_dir).run_dir == str(run_dir.path)
        assert (run_dir.code / "changes.diff").stat().st_size == 1000
        assert (run_dir.runtime / "hpcflow/runtime").is_dir()


def test_what_a_killed_process_left_on_scratch_is_removed_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, code = Home(tmp_path / "home"), CodeTree({"a.py": CodeFile(b"1")}, {}, is_private=False)

    def again() -> Run:
        return make_run(tmp_path / "s").model_copy(update={"begins_from": "start"})

    starting = again()
    folder = Path(starting.run_dir).parent

    def die(start: Path) -> None:
        start.mkdir(parents=True)
        (start / "model.pt").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        create_run(starting, home, snapshot=code, start=die)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    (half,) = folder.iterdir()
    place, now_s = code_place(folder.parent, code.digest), time.time()
    create_run(again(), home, start=Path.mkdir)
    assert half.exists(), "it may be made at this moment"
    monkeypatch.setattr(time, "time", lambda: now_s + 8 * 86400)
    remove_unused(place.parent)
    assert place.exists(), "what was left refers to it"
    create_run(again(), home, start=Path.mkdir)
    assert not half.exists()
    assert len(list(folder.iterdir())) == 2, "the runs stay"
    monkeypatch.setattr(time, "time", lambda: now_s + 16 * 86400)
    remove_unused(place.parent)
    assert not place.exists()
