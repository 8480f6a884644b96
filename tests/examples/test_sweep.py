"""The example of a sweep learns, and what docs/sweeps.md tells a newcomer to type works."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
import yaml

from hpcflow.cli.main import COMMANDS, main
from hpcflow.config.sweep import load_sweep
from hpcflow.testing.cluster import poll
from tests.runtime.harness import RunFolder

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "sweep"
PAGE = (ROOT / "docs" / "sweeps.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.S | re.M)
#: What a newcomer types is behind a prompt, or begins with the name of the command.
TYPED = [
    line.removeprefix("$ ")
    for language, block in BLOCKS
    if language == ""
    for line in block.splitlines()
    if line.startswith(("$ hpcflow ", "hpcflow "))
]
NAMED = [" ".join(words.split()) for words in re.findall(r"`(hpcflow [a-z][^`]*)`", PAGE)]


def words_of(line: str) -> list[str]:
    """A line as the program gets it: without its comment, and without where its output goes."""
    words = shlex.split(line, comments=True)
    return words[1 : words.index(">") if ">" in words else None]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words call, and what it is given."""
    module, _ = COMMANDS[words[0]]
    command: click.Command = import_module(module).command
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def run_example(folder: RunFolder, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=folder.path,
        capture_output=True,
        text=True,
        check=True,
    )


def test_it_is_a_plain_script_too(tmp_path: Path) -> None:
    run_example(RunFolder(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_it_learns_and_says_so_in_the_words_of_the_sweep(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    run_example(folder, **folder.environ())
    (finished,) = folder.events("finished")
    (goal,) = load_sweep(EXAMPLE / "sweep.yaml").spec.goals
    assert finished["metrics"][goal.metric] > 0.95
    assert goal.metric in folder.events("progress")[0]["metrics"], "by this trials are pruned"


def test_it_has_every_parameter_that_the_sweep_varies() -> None:
    loaded = load_sweep(EXAMPLE / "sweep.yaml")
    varied = {each.name for each in loaded.spec.space.parameters}
    source = (EXAMPLE / "train.py").read_text()
    defaults = set(re.findall(r'^    "(\w+)": ', source, re.M))
    assert varied
    assert varied | loaded.base.spec.params.keys() <= defaults
    assert (EXAMPLE / str(loaded.base.spec.script)).exists()


def test_the_page_shows_the_sweep_of_the_example() -> None:
    shown = next(block for language, block in BLOCKS if language == "yaml")
    assert yaml.safe_load(shown) == yaml.safe_load((EXAMPLE / "sweep.yaml").read_text())


@pytest.mark.parametrize("line", TYPED)
def test_what_the_page_tells_to_type_is_taken(line: str) -> None:
    command, rest = command_of(words_of(line))
    assert not isinstance(command, click.Group) or command.invoke_without_command
    command.make_context("hpcflow", list(rest)).close()


@pytest.mark.parametrize("line", NAMED)
def test_every_command_and_option_that_the_page_names_is_there(line: str) -> None:
    command, rest = command_of(words_of(line))
    there = {option for param in command.params for option in param.opts}
    assert {word for word in rest if word.startswith("--")} <= there


def test_the_page_was_read() -> None:
    assert len(TYPED) > 10
    assert {"hpcflow sweep tick", "hpcflow sweep install --scrontab"} <= set(NAMED)


def test_the_program_in_shell_reports_what_it_computed(tmp_path: Path) -> None:
    (script,) = [block for language, block in BLOCKS if language == "bash"]
    folder = RunFolder(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, **folder.environ(), "PYTHONPATH": str(ROOT), "PATH": path}
    subprocess.run(
        ["/bin/bash", "-c", script, "trial.sh", "4"],
        env={**environ, "HPCFLOW_PARAM_y": "-1"},
        cwd=tmp_path,
        check=True,
    )
    assert folder.events("finished")[0]["metrics"] == {"value": 10.0}


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A newcomer in a copy of the example, on a machine without Slurm."""
    assert not home.exists()
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "sweep"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    yield folder
    main(["sweep", "stop", "digits-tpe", "--cancel"])  # where the test has failed half-way


def test_a_newcomer_comes_from_nothing_to_a_plot(
    desk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Line by line as it stands there, but for the number of trials, and for what does not end
    with this test: cron, and the best one trained again."""
    dry_run, start, *after = TYPED
    assert dry_run.endswith("--dry-run")
    assert main(words_of(dry_run)) == 0
    assert not (desk.parent / "home" / "sweeps").exists()
    small = ["--set", "budget.trials=3", "--set", "space.pause_s=0"]
    assert main([*words_of(start), *small]) == 0
    capfd.readouterr()

    def is_over() -> bool:
        assert main(["sweep", "ls", "--json"]) == 0
        if not json.loads(capfd.readouterr().out)["sweeps"]:
            return True
        assert main(["sweep", "tick"]) == 0
        capfd.readouterr()
        return False

    poll(is_over, 300, "the sweep")

    plot = after.index("hpcflow sweep plot digits-tpe")
    looking = [
        line
        for line in after[: plot + 1]
        if line != "hpcflow sweep install" and " --run" not in line
    ]
    assert len(looking) == 6
    for line in looking:
        assert main(words_of(line)) == 0, line
    (figures,) = desk.glob("digits-tpe-*-plots")
    assert (figures / "history.png").read_bytes().startswith(b"\x89PNG")
    assert "accuracy 0.9" in capfd.readouterr().out
