"""Bad input: one clear message with file, line and key, exit code 2, and nothing created."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hpcflow
from hpcflow.cli.main import main
from hpcflow.errors import SiteError, Where

GOOD = """\
name: small
script: train.py
resources:
  nodes: 1
  time_limit: 10m
"""


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a script, on a login node of the development cluster; nothing in it changes."""
    folder = tmp_path / "desk"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SCRATCH", str(scratch))
    monkeypatch.setenv("HPCFLOW_SITE", "devcluster")
    monkeypatch.chdir(folder)
    yield folder
    assert list(scratch.iterdir()) == [], "something was created on scratch"
    assert not (home / "runs").exists() or list((home / "runs").iterdir()) == []


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one message of ``hpcflow run``, which must end with exit code 2."""
    assert main(["run", "config.yaml", *args]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("error: ") == 1
    return said.err


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (changed("name: small", "nmae: small"), ["config.yaml:1", "nmae", "name"]),
        (changed("10m", "5m\n  partition: short"), ["resources.time_limit", "short"]),
        (
            changed("script: train.py", f"script: train.py\nargs: '{'9' * 400}'"),
            ["config.yaml:3", "args", "expected a list, got the text"],
        ),
        (
            changed("nodes: 1", "sbatch: {reservation: x, mem: 1G}"),
            ["config.yaml:4", "resources.sbatch.mem", "resources.mem"],
        ),
        (
            changed("script: train.py", "command: 'true'\nbefore: [./a, '']"),
            ["config.yaml:3", "before[1]", "names no program"],
        ),
        ("name: [unclosed\n", ["config.yaml"]),
        ("", ["config.yaml", "empty"]),
        ("- just\n- a list\n", ["config.yaml:1"]),
    ],
)
def test_a_wrong_config_is_explained(
    desk: Path, capsys: pytest.CaptureFixture[str], text: str, said: list[str]
) -> None:
    (desk / "config.yaml").write_text(text)
    message = refused(capsys)
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    "name",
    ["two\nlines", 'quo"te', "quo'te", "$(touch owned)", "../up", "a..b", "x" * 5000, "", "-dash"],
)
def test_a_hostile_name_is_refused(
    desk: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (desk / "config.yaml").write_text(GOOD.replace("small", json.dumps(name)))
    message = refused(capsys)
    assert "config.yaml:1" in message
    assert len(message) < 1000
    assert not (desk / "owned").exists()


@pytest.mark.parametrize("name", ["lr", "learning_rate", "batch-size"])
def test_a_value_for_the_program_belongs_under_params(
    desk: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    assert f"'params.{name.replace('-', '_')}'" in refused(capsys, "--set", f"{name}=0.1")
    (desk / "config.yaml").write_text(f"{GOOD}{name}: 0.1\n")
    assert f"'params.{name.replace('-', '_')}'" in refused(capsys)


@pytest.mark.parametrize("name", ["train.py", "it's mine.py", "train.sh", "below/train.py"])
def test_a_program_in_place_of_a_config_is_told_its_config(
    desk: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (desk / name).parent.mkdir(exist_ok=True)
    (desk / name).write_text("import torch\nprint('trained')\n")
    assert main(["run", name]) == 2
    told = re.search(
        r"write this line to (.*config.yaml): (.*); then: hpcflow (.*)\n", capsys.readouterr().err
    )
    assert told is not None
    (desk / told[1]).write_text(told[2])
    assert main(told[3].split()) == 0


def test_an_unknown_site_names_the_nearest(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "config.yaml").write_text(GOOD)
    message = refused(capsys, "--site", "perlmuter")
    assert message.startswith("error: --site: there is no site 'perlmuter'")
    assert "perlmutter" in message
    assert "hpcflow site list" in message


def test_an_unknown_site_of_the_environment_or_the_settings_says_where_it_was_named(
    desk: Path,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("# mine\nsite: frontire\n")
    monkeypatch.setenv("HPCFLOW_SITE", "perlmuter")
    assert "error: HPCFLOW_SITE: there is no site 'perlmuter'" in refused(capsys)
    monkeypatch.delenv("HPCFLOW_SITE")
    assert f"error: {home}/config.yaml:2, site: there is no site 'frontire'" in refused(capsys)
    with pytest.raises(SiteError, match="'frontire'") as caught:
        hpcflow.submit("config.yaml")
    assert caught.value.where == Where(f"{home}/config.yaml", 2, "site")


def test_a_scratch_variable_that_is_not_set_names_the_sites_file(
    desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    monkeypatch.delenv("SCRATCH")
    message = refused(capsys)
    assert re.search(r"error: \S+/devcluster\.yaml:\d+, scratch\.path: .*\$SCRATCH is not", message)
    assert "export SCRATCH=" in message


def test_a_directory_and_a_missing_file(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "config.yaml" in refused(capsys)
    (desk / "config.yaml").mkdir()
    assert "config.yaml: this is a folder" in refused(capsys)


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_no_sbatch_is_said_before_anything_is_made(
    desk: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    monkeypatch.setenv("PATH", str(desk))
    assert "no sbatch" in refused(capsys, *options)


def test_with_json_the_error_is_json_too(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "config.yaml").write_text(GOOD.replace("nodes: 1", "nodes: 0"))
    assert main(["run", "config.yaml", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["key"] == "resources.nodes"
    assert error["line"] == 4
    assert error["file"].endswith("config.yaml")


def test_with_json_several_mistakes_are_a_list(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = GOOD.replace("nodes: 1", "nodes: 0").replace("10m", "soon").replace("script", "scirpt")
    (desk / "config.yaml").write_text(wrong)
    assert main(["run", "config.yaml", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    found = {problem["key"]: problem for problem in error["problems"]}
    assert {key: problem["line"] for key, problem in found.items()} == {
        "scirpt": 2,
        "resources.nodes": 4,
        "resources.time_limit": 5,
    }
    assert {problem["file"] for problem in found.values()} == {error["file"]}
    assert "did you mean" in found["scirpt"]["message"]


def test_a_config_that_may_not_be_read_is_named_by_us(desk: Path) -> None:
    (desk / "config.yaml").write_text(GOOD)
    (desk / "config.yaml").chmod(0)
    for words in (["run", "config.yaml"], ["render", "config.yaml"]):
        code, said = as_nobody(words)
        assert code == 2
        assert said.startswith("error: config.yaml: cannot be read: Permission denied")
        assert "ls -l config.yaml" in said


def as_nobody(words: list[str]) -> tuple[int, str]:
    """Exit code and stderr of ``hpcflow``, called by a user who is not root."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(writing, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            if os.geteuid() == 0:
                os.environ.pop("HPCFLOW_HOME")
                os.environ["HOME"] = "/nonexistent"
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os._exit(main(words))
        finally:
            os._exit(99)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


@pytest.mark.parametrize(
    ("scratch", "options"),
    [
        ("/proc/nowhere", ()),
        ("/dev/null/nowhere", ()),
        ("/dev/null/nowhere", ("--dry-run",)),
        ("{desk}/open", ("--dry-run",)),
    ],
)
def test_a_scratch_that_cannot_be_written(
    desk: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    scratch: str,
    options: tuple[str, ...],
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    (desk / "open/hpcflow").mkdir(parents=True)
    (desk / "open/hpcflow").chmod(0o777)
    monkeypatch.setenv("SCRATCH", scratch.format(desk=desk))
    assert scratch.format(desk=desk) in refused(capsys, *options)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_scratch(
    desk: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(full)], check=True)
    try:
        monkeypatch.setenv("SCRATCH", str(full))
        message = refused(capsys)
        assert "full" in message
        assert list(full.iterdir()) == []
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_a_run_that_does_not_exist(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "logs", "cancel", "resume", "wait"):
        assert main([command, "nonesuch"]) == 2
        assert "hpcflow ls" in capsys.readouterr().err
    assert list(desk.iterdir()) == [desk / "train.py"]


def test_a_home_that_is_a_file_is_not_blamed_on_scratch(
    desk: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    home.write_text("")
    message = refused(capsys)
    assert message.startswith(f"error: HPCFLOW_HOME: {home} is not a directory")
    assert "scratch" not in message


@pytest.mark.parametrize(
    "url",
    [
        "mysql",
        "mysql://h/x",
        "postgresql://ada:SEK RET@h/x",
        "postgresql://ada:SEK?RET@h/x",
        "postgresql://ada:SEK@RET@h/x",
        "postgres:/ada:SEKRET@db/x",
    ],
)
def test_a_wrong_ledger_is_refused_before_anything_is_sent_and_shows_no_password(
    desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (desk / "config.yaml").write_text(GOOD)
    monkeypatch.setenv("HPCFLOW_LEDGER", url)
    message = refused(capsys)
    assert "ledger" in message
    assert "SEK" not in message
    assert "RET" not in message


def test_a_wrong_option_with_json_is_json(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    for words in (["show", "--json"], ["ls", "--json", "--state", "xx"], ["shwo", "--json"]):
        assert main(words) == 2
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UsageError"
    assert not home.exists()


def test_what_is_no_text_is_no_name_of_anything(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    assert not home.exists()
    for option in ("--tag", "--project"):
        assert main(["ls", option, "a\udcff", "--json"]) == 2
        assert option in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("words", [["ls", "--json"], ["ls"], ["version"], ["--help"]])
def test_an_output_that_cannot_be_written_is_one_line(home: Path, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hpcflow.cli.main", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HPCFLOW_HOME": str(home)},
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


def test_streams_that_are_closed_are_no_error(home: Path) -> None:
    command = [sys.executable, "-m", "hpcflow.cli.main", "scratch"]
    environ = {**os.environ, "HPCFLOW_HOME": str(home), "HPCFLOW_SITE": "local"}
    closed = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command]
    assert subprocess.run(closed, env=environ, check=False).returncode == 0


def test_an_error_whose_json_cannot_be_written_keeps_its_exit_code(home: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hpcflow.cli.main", "show", "nonesuch", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HPCFLOW_HOME": str(home)},
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no run 'nonesuch'")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("place", ["x" * 300, "a file", "a file/below", "loop"])
def test_a_home_that_can_be_no_folder_is_bad_input(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("HPCFLOW_HOME", str(tmp_path / place))
    for words in (["ls"], ["run", "config.yaml"], ["show", "x"]):
        assert main(words) == 2
        assert "HPCFLOW_HOME" in capsys.readouterr().err
