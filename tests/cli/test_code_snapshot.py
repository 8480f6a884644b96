"""A run executes the code of its creation, whatever becomes of the files that it was taken from."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import SystemClock
from hpcflow.provenance.git import GitError
from hpcflow.settings import load_settings
from hpcflow.storage.runs import run_dir_of
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.cli.desk import Desk
from tests.cli.test_secrets import TOKEN
from tests.cli.test_sweep_command import sweep, until_over
from tests.provenance.test_git import git

__all__ = ["sweep"]  # a fixture

#: A program that says which code it is, and fails until a file is there.
PROGRAM = """
import os, sys
from helper import CODE
print("code", CODE, "in", os.getcwd(), *sys.argv[1:], flush=True)
sys.exit(0 if os.path.exists("mended") else 1)
"""
LAUNCH = "launch: {framework: none, launcher: none}\n"
#: How a config names the program: a script, a command in each of its forms.
WAYS = {
    "script": "script: train.py\n",
    "script below": "script: lib/train.py\n",
    "command": f"command: [{sys.executable}, -u, train.py]\n",
    "absolute": f"command: [{sys.executable}, {{here}}, some, words]\n",
    "module": f"command: [{sys.executable}, -u, -m, package.train, some, words]\n",
    "package": f"command: [{sys.executable}, -m, package]\n",
    "shell script": "command: [bash, train.sh]\n",
    "executable": "command: [./train.sh]\n",
    "arguments": f"command: [{sys.executable}, -u]\nargs: [train.py, some, words]\n",
    "module in arguments": f"command: [{sys.executable}]\nargs: [-m, package.train]\n",
    "absolute link": "script: linked.py\n",
    "on PYTHONPATH": "script: bin/begin.py\nenvironment: {variables: {PYTHONPATH: '.:..'}}\n",
    "before": f"command: 'true'\nbefore: [[{sys.executable}, train.py]]\n",
    "installed": f"command: [{sys.executable}, -c, 'import editable.train']\n",
}


def write(folder: Path, code: str) -> None:
    """Put the program into ``folder``, in each of its forms."""
    for below in ("", "lib", "package", "src/editable"):
        (folder / below).mkdir(parents=True, exist_ok=True)
        (folder / below / "helper.py").write_text(f"CODE = {code!r}\n")
        (folder / below / "train.py").write_text(PROGRAM)
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/begin.py").write_text("import package.train\n")
    if not (folder / "linked.py").is_symlink():
        (folder / "linked.py").symlink_to(folder / "train.py")
    for package in (folder / "package", folder / "src/editable"):
        (package / "__init__.py").touch()
        text = PROGRAM.replace("from helper", "from .helper")
        (package / "train.py").write_text(text)
        (package / "__main__.py").write_text(text)
    (folder / "train.sh").write_text(
        f'#!/bin/bash\necho shell {code}\nexec {sys.executable} "$HPCFLOW_CODE/train.py"\n'
    )
    (folder / "train.sh").chmod(0o755)
    (folder / "pyproject.toml").write_text("")


@pytest.fixture
def config(desk: Desk) -> Callable[..., str]:
    """Write the program, and a config that names it; the path of the config."""

    def make(program: str = WAYS["script"], **more: str) -> str:
        write(desk.folder, "first")
        path = desk.folder / "run.yaml"
        said = program.replace("{here}", json.dumps(str(desk.folder / "train.py")))
        more_text = "".join(f"{key}: {value}\n" for key, value in more.items())
        path.write_text(f"name: frozen\n{said}{LAUNCH}{more_text}")
        return str(path)

    return make


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeScheduler:
    """Jobs wait, and none is started."""
    queue = FakeScheduler(SystemClock(), starts_at_once=False)
    queue.partitions = ("local",)
    monkeypatch.setattr("hpcflow.launch.connecting.connect_scheduler", lambda *_: queue)
    return queue


def log_of(run: dict[str, Any], attempt: int) -> str:
    return (Path(run["run_dir"]) / f"attempts/{attempt:04d}/out.log").read_text()


def place_of(run: dict[str, Any]) -> Path:
    (place,) = (Path(run["run_dir"]).parents[1] / ".code").iterdir()
    return place


def commit_some(folder: Path) -> None:
    """Make a repository, in which most of the code is not tracked."""
    git(folder, "init", "-q")
    git(folder, "add", "train.py", "helper.py")
    git(folder, "commit", "-qm", "first")


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("way", WAYS)
def test_code_that_is_edited_while_the_job_waits_changes_nothing(
    desk: Desk, config: Callable[..., str], way: str
) -> None:
    path = config(WAYS[way])
    commit_some(desk.folder)
    run = desk.json("run", path)
    write(desk.folder, "second")
    script = Path(run["run_dir"]) / "attempts/0001/job.sbatch"
    job = subprocess.run(["bash", script], capture_output=True, text=True, timeout=60, check=False)
    said = job.stdout
    assert "code first" in said
    assert "second" not in said
    assert f"in {desk.folder}" in said, "the working directory stays"


@pytest.mark.parametrize("is_repository", [True, False], ids=["git", "no git"])
def test_code_that_is_edited_between_two_attempts_changes_nothing(
    desk: Desk, config: Callable[..., str], *, is_repository: bool
) -> None:
    path = config()
    if is_repository:
        commit_some(desk.folder)
    run = desk.json("run", path, "--wait", code=1)
    assert "code first" in log_of(run, 1)
    write(desk.folder, "second")
    (desk.folder / "mended").touch()
    assert desk.json("resume", "frozen", "--wait")["state"] == "completed"
    assert "code first" in log_of(run, 2)


def test_a_run_goes_on_when_its_code_is_deleted(desk: Desk, config: Callable[..., str]) -> None:
    run = desk.json("run", config(), "--wait", code=1)
    for path in (desk.folder / "train.py", desk.folder / "helper.py"):
        path.unlink()
    (desk.folder / "mended").touch()
    desk.json("resume", "frozen", "--wait")
    assert "code first" in log_of(run, 2)


def test_live_code_is_read_by_each_attempt(desk: Desk, config: Callable[..., str]) -> None:
    run = desk.json("run", config(code="live"), "--wait", code=1)
    assert not (Path(run["run_dir"]).parents[1] / ".code").exists()
    write(desk.folder, "second")
    (desk.folder / "mended").touch()
    desk.json("resume", "frozen", "--wait")
    assert "code second" in log_of(run, 2)


#: What ``resume --set`` adds to a run, and the program that the run has.
ADDED = {
    "args": ("args=[lib/train.py]", WAYS["arguments"]),
    "before": (f"before=[[{sys.executable}, lib/train.py]]", "command: ['true', train.py]\n"),
    "after": (f"after=[[{sys.executable}, lib/train.py]]", "command: ['true', train.py]\n"),
    "PYTHONPATH": ("environment.variables.PYTHONPATH=lib", "script: bin/begin.py\n"),
}


@pytest.mark.parametrize(("override", "program"), ADDED.values(), ids=list(ADDED))
def test_what_is_added_to_a_run_is_its_own_code(
    desk: Desk, config: Callable[..., str], override: str, program: str
) -> None:
    path = config(program, before="['false']", after="[]")
    (desk.folder / "bin/begin.py").write_text("import train\n")
    (desk.folder / "pyproject.toml").unlink()
    run = desk.json("run", path, "--wait", code=1)
    write(desk.folder, "second")
    shutil.rmtree(desk.folder / "lib/__pycache__", ignore_errors=True)
    (desk.folder / "mended").touch()
    more = () if override.startswith("before") else ("--set", "before=[]")
    told = desk.error("resume", "frozen", "--set", override, *more, "--wait", code=0)
    assert "code snapshot" not in told
    assert "code first" in log_of(run, 2)


def test_the_first_code_that_a_run_is_given_is_frozen(
    desk: Desk, config: Callable[..., str]
) -> None:
    run = desk.json("run", config("command: 'false'\n"), "--wait", code=1)
    assert desk.json("show", "frozen")["code"] is None, "its program is installed software"
    before = ("--set", f"before=[[{sys.executable}, train.py]]")
    desk.json("resume", "frozen", *before, "--wait", code=1)
    write(desk.folder, "second")
    desk.json("resume", "frozen", "--wait", code=1)
    assert "code first" in log_of(run, 3)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("args=[new.py]", "new.py"),
        (f"before=[[{sys.executable}, new.py]]", "new.py"),
        ("before=[[bash, -c, 'python3 train.py']]", "train.py"),
        ("environment.variables.PYTHONPATH=new", "new"),
        (f"command=[{sys.executable}, ignored.py]", "ignored.py"),
    ],
)
def test_who_adds_what_is_no_part_of_the_code_of_a_run_is_told(
    desk: Desk, config: Callable[..., str], override: str, named: str
) -> None:
    path = config(WAYS["arguments"])
    (desk.folder / ".gitignore").write_text("ignored.py\n")
    desk.json("run", path, "--wait", code=1)
    (desk.folder / "new").mkdir()
    for name in ("new.py", "new/a.py", "ignored.py"):
        (desk.folder / name).write_text("raise SystemExit(1)\n")
    told = desk.error("resume", "frozen", "--set", override, "--wait", code=1)
    assert re.search(rf"^warning: .*\b{named} ", told, re.MULTILINE)
    assert ("--set code=snapshot" in told) == (named != "ignored.py")
    told = desk.error("resume", "frozen", "--set", "tags=[a]", "--wait", code=1)
    assert f"{named} " not in told, "it is known"


def test_a_person_can_let_a_run_go_on_with_the_code_of_now_and_its_commit_is_told(
    desk: Desk, config: Callable[..., str]
) -> None:
    def commit() -> str:
        git(desk.folder, "add", ".")
        git(desk.folder, "commit", "-qm", "a state")
        return git(desk.folder, "rev-parse", "HEAD").strip()

    path = config()
    git(desk.folder, "init", "-q")
    first = commit()
    (desk.folder / "helper.py").write_text("CODE = 'first, but for a line'\n")
    run = desk.json("run", path, "--wait", code=1)
    seen = desk.json("show", "frozen")
    assert (seen["commit"], seen["has_uncommitted_changes"]) == (first, True)
    assert seen["code"] == {"digest": seen["code"]["digest"], "root": str(desk.folder)}
    assert place_of(run).name == seen["code"]["digest"][:20]
    assert f"  code           snapshot {place_of(run).name} of " in desk.say("show", "frozen")
    diff = Path(run["run_dir"]) / "code/uncommitted.diff"
    assert b"but for a line" in diff.read_bytes()
    write(desk.folder, "second")
    second = commit()
    desk.json("resume", "frozen", "--set", "code=snapshot", "--wait", code=1)
    assert "code second" in log_of(run, 2)
    now = desk.json("show", "frozen")
    assert (now["commit"], now["has_uncommitted_changes"]) == (second, False)
    assert now["code"]["digest"] != seen["code"]["digest"]
    assert diff.read_bytes() == b""
    write(desk.folder, "third")
    desk.json("resume", "frozen", "--set", "code=live", "--wait", code=1)
    assert "code third" in log_of(run, 3)
    assert desk.json("show", "frozen")["code"] is None
    assert "  code           read live by each attempt" in desk.say("show", "frozen")


def test_who_asks_for_a_new_snapshot_is_told_if_there_can_be_none(
    desk: Desk, config: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.json("run", config(), "--wait", code=1)

    def refused(*_: object) -> None:
        raise GitError("git did not answer within 10 s")

    monkeypatch.setattr("hpcflow.provenance.snapshot.list_files", refused)
    said = desk.error("resume", "frozen", "--set", "code=snapshot")
    assert "git did not answer within 10 s" in said
    assert "--set code=live" in said
    assert len(desk.json("show", "frozen")["attempts"]) == 1


@pytest.mark.usefixtures("queue")
def test_runs_of_the_same_code_share_it_and_other_code_does_not_change_it(
    desk: Desk, config: Callable[..., str]
) -> None:
    path = config()
    first, second = (desk.json("run", path) for _ in range(2))
    place = place_of(first)
    archives = [next(Path(run["run_dir"], "code").glob("*.tar.gz")) for run in (first, second)]
    assert archives[0].stat().st_nlink == 3
    assert all(each.samefile(place / f"{place.name}.tar.gz") for each in archives)
    write(desk.folder, "second")
    desk.json("run", path)
    (other,) = {*place.parent.iterdir()} - {place}
    assert (other / "files/helper.py").read_text() == "CODE = 'second'\n"
    assert (place / "files/helper.py").read_text() == "CODE = 'first'\n"


def test_the_snapshot_is_for_its_user_alone(desk: Desk, config: Callable[..., str]) -> None:
    place = place_of(desk.json("run", config(), "--wait", code=1))
    for path in (place.parent, *(place / "files").rglob("*")):
        is_compiled = "__pycache__" in path.parts
        assert is_compiled or path.is_symlink() or path.stat().st_mode & 0o077 == 0, path


def test_a_damaged_snapshot_is_made_again_before_the_next_attempt(
    desk: Desk, config: Callable[..., str]
) -> None:
    """Which damage is seen: tests/storage/test_code_snapshot.py."""
    run = desk.json("run", config(), "--wait", code=1)
    file = place_of(run) / "files/helper.py"
    file.write_text("CODE = 'other'\n")
    write(desk.folder, "second")
    (desk.folder / "mended").touch()
    desk.json("resume", "frozen", "--wait")
    assert "code first" in log_of(run, 2)


def test_a_lost_archive_is_made_again_from_code_that_has_not_changed(
    desk: Desk, config: Callable[..., str]
) -> None:
    run = desk.json("run", config(), "--wait", code=1)
    shutil.rmtree(place_of(run))
    shutil.rmtree(Path(run["run_dir"]) / "code")
    (desk.folder / "mended").touch()  # an untracked file: it is another snapshot
    error = desk.json("resume", "frozen", code=1)["error"]
    assert "scratch has lost the code snapshot" in error["message"]
    assert "--set code=snapshot" in error["next_action"]
    (desk.folder / "mended").unlink()
    desk.json("resume", "frozen", "--wait", code=1)
    assert "code first" in log_of(run, 2)


def test_what_git_ignores_is_found_beside_the_program(
    desk: Desk, config: Callable[..., str]
) -> None:
    path = config()
    (desk.folder / ".gitignore").write_text("data/\n*.so\n*.log\n")
    (desk.folder / "data").mkdir()
    (desk.folder / "data/one.csv").write_text("1\n")
    for name in (".env", "native.so", "old.log"):
        (desk.folder / name).write_text("x\n")
    text = "from pathlib import Path\nhere = Path(__file__).resolve().parent\n"
    text += "print((here / 'data/one.csv').read_text(), (here / '.env').read_text())\n"
    (desk.folder / "train.py").write_text(text)
    run = desk.json("run", path, "--wait")
    assert "1\n x\n" in log_of(run, 1)
    files = place_of(run) / "files"
    assert {each.name for each in files.iterdir() if each.is_symlink()} == {
        "linked.py",
        "data",
        ".env",
        "native.so",
    }


def test_too_much_is_refused_with_the_largest_files_and_the_way_out(
    desk: Desk, config: Callable[..., str]
) -> None:
    path = config()
    with (desk.folder / "weights.bin").open("wb") as file:
        file.truncate(101 << 20)
    said = desk.error("run", path)
    assert f"{desk.folder}/run.yaml, code: the code in " in said
    assert "The largest: weights.bin (101.0 MiB)" in said
    assert ".gitignore" in said
    assert "code: live" in said
    assert not desk.json("ls")["runs"]
    (desk.folder / ".gitignore").write_text("*.bin\n")
    desk.json("run", path, "--dry-run")


@pytest.mark.parametrize(
    ("limit", "said"),
    [("snapshot.MAX_FILES", "Most are in: many (30), "), ("git._MAX_LIST_BYTES", "far more than")],
)
def test_too_many_files_are_refused_with_the_folder_that_has_most(
    desk: Desk,
    config: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    said: str,
) -> None:
    path = config()
    (desk.folder / "many").mkdir()
    for number in range(30):
        (desk.folder / f"many/{number}.txt").touch()
    monkeypatch.setattr(f"hpcflow.provenance.{limit}", 40)
    told = desk.error("run", path)
    assert said in told
    assert "code: live" in told
    assert not desk.json("ls")["runs"]


@pytest.mark.usefixtures("queue")
def test_the_home_and_the_scratch_of_hpcflow_are_no_code(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCFLOW_HOME", str(tmp_path / "project/home"))
    write(tmp_path / "project", "first")
    config = tmp_path / "project/run.yaml"
    config.write_text(f"name: frozen\n{WAYS['script']}{LAUNCH}")
    first, second = (desk.json("run", str(config)) for _ in range(2))
    assert place_of(first) == place_of(second)


@pytest.mark.parametrize("way", ["script: train.py", "command: [python3, ./train.py]"])
def test_all_trials_of_a_sweep_execute_the_code_of_its_start(
    desk: Desk, sweep: Path, way: str
) -> None:
    base = desk.folder / "config.yaml"
    base.write_text(base.read_text().replace("script: train.py", way))
    few = ("--set", "budget.trials=2", "--set", "parallel=1")
    desk.json("sweep", "start", str(sweep), *few)
    (desk.folder / "train.py").unlink()
    seen = until_over(desk)
    assert seen["complete"] == 2
    again = desk.json("sweep", "best", "quick", "--run")
    desk.say("wait", again["run_id"])


def test_a_function_of_a_sweep_is_called_as_it_was_at_its_start(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.folder)
    objective = desk.folder / "objective.py"
    objective.write_text("def objective(lr):\n    return lr\n")
    desk.json(
        *("sweep", "start", "objective.py:objective", "--space", "{lr: {low: 0.0, high: 1.0}}"),
        *("--direction", "minimize", "--set", "budget.trials=3", "--set", "parallel=1"),
    )
    objective.write_text("def objective(lr):\n    raise SystemExit('the code of now')\n")
    assert until_over(desk, "objective")["complete"] == 3


@pytest.mark.parametrize("lost", ["", "code"])
def test_a_mirror_has_the_code_and_brings_it_back(
    desk: Desk, config: Callable[..., str], tmp_path: Path, lost: str
) -> None:
    (store := tmp_path / "store").mkdir()
    run = desk.json("run", config(mirror=str(store)), "--wait", code=1)
    desk.say("mirror", "--once")
    shutil.rmtree(Path(run["run_dir"]).parents[1] / ".code")
    shutil.rmtree(Path(run["run_dir"], lost))
    write(desk.folder, "second")
    (desk.folder / "mended").touch()
    if lost:
        assert "hpcflow restore frozen" in desk.error("resume", "frozen", code=1)
        desk.json("restore", "frozen")
    else:
        desk.json("restore", "--from", f"{store}/{run['run_id']}")
    desk.json("resume", "frozen", "--wait")
    assert "code first" in log_of(run, 2)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "utf-32"])
def test_code_with_a_secret_is_executed_and_not_mirrored(
    desk: Desk, config: Callable[..., str], tmp_path: Path, encoding: str
) -> None:
    (store := tmp_path / "store").mkdir()
    path = config(mirror=str(store))
    name = "helper.py" if encoding == "utf-8" else "helper.ps1"
    (desk.folder / name).write_text(f"CODE = 'first'\nTOKEN = '{TOKEN}'\n", encoding)
    assert f"is not mirrored: there are secrets in {name}:2" in desk.error(
        "run", path, "--wait", code=1
    )
    desk.say("mirror", "--once")
    (run,) = desk.json("ls")["runs"]
    assert "code first" in desk.say("logs", run["run_id"])
    assert (store / run["run_id"] / "journal.jsonl").exists()
    assert not (store / run["run_id"] / "code").exists()


def test_a_program_that_git_ignores_is_warned_of(desk: Desk, config: Callable[..., str]) -> None:
    path = config()
    (desk.folder / ".gitignore").write_text("train.py\n")
    said = desk.error("run", path, "--dry-run", code=0)
    assert "train.py is not part of the code snapshot" in said


SHELL = {
    "shell": (
        "command: [bash, -c, 'cd . && python3 ./train.py']\n",
        "each attempt executes ./train.py",
    ),
    "shell script": ("command: [bash, begin.sh]\n", "each attempt executes lib/train.py"),
    "executable": ("command: [./begin]\n", "each attempt executes lib/train.py"),
    "launcher": ("command: [torchrun, -m, package.train]\n", "each attempt imports package.train"),
}


@pytest.mark.parametrize(("program", "said"), SHELL.values(), ids=list(SHELL))
def test_code_that_is_read_from_the_working_directory_is_warned_of(
    desk: Desk, config: Callable[..., str], program: str, said: str
) -> None:
    path = config(program)
    git(desk.folder, "init", "-q")
    git(desk.folder, "add", ".")
    git(desk.folder, "commit", "-qm", "first")
    text = '#!/bin/bash\npython3 lib/train.py --config none.py "$HPCFLOW_CODE/train.py"\n'
    for name in ("begin", "begin.sh"):
        (desk.folder / name).write_text(text)
        (desk.folder / name).chmod(0o755)
    told = desk.error("render", path, code=0)
    assert told.count("warning: ") == 1
    assert f"warning: {said} from the working directory, as it is then" in told
    assert ("$HPCFLOW_CODE/" in told) == ("executes" in said)


def test_a_run_of_an_older_hpcflow_goes_on_as_live(desk: Desk, config: Callable[..., str]) -> None:
    run = desk.json("run", config(), "--wait", code=1)
    path = run_dir_of(load_settings().home, run["run_id"]).run_json
    frozen = json.loads(path.read_text())
    del frozen["code"], frozen["spec"]["code"]
    path.write_text(json.dumps(frozen))
    write(desk.folder, "second")
    (desk.folder / "mended").touch()
    desk.json("resume", "frozen", "--wait")
    assert "code second" in log_of(run, 2)
