"""The list of commands, their help and the docs say the same."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from hpcflow.cli.main import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_what_the_list_says(name: str) -> None:
    module, text = COMMANDS[name]
    command = import_module(module).command
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.get_short_help_str(limit=200) == text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_speaks_json(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: hpcflow {name}")
    command = import_module(COMMANDS[name][0]).command
    leaves = command.commands.values() if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        options = {option for param in leaf.params for option in param.opts}
        assert "--json" in options or name == "completion"


def test_a_misspelt_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shwo", "x"]) == 2
    assert "Did you mean 'show'?" in capsys.readouterr().err


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from hpcflow.cli.main import main; main(['--help']);"
        "print([m for m in ('sqlalchemy', 'pydantic', 'jinja2', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def completed(words: str, home: Path) -> list[str]:
    """What bash would offer after ``words``."""
    done = subprocess.run(
        [sys.executable, "-m", "hpcflow.cli.main"],
        env={
            "PATH": "/usr/bin:/bin",
            "HPCFLOW_HOME": str(home),
            "_HPCFLOW_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.removeprefix("plain,") for line in done.stdout.split()]


def test_shells_complete_commands_and_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("digits-20260101-abcdefgh", "other-20260101-abcdefgh"):
        (tmp_path / "runs" / name).symlink_to(tmp_path)
    assert completed("hpcflow re", tmp_path) == ["render", "resume"]
    assert completed("hpcflow show di", tmp_path) == ["digits-20260101-abcdefgh"]
    assert completed("hpcflow cancel o", tmp_path) == ["other-20260101-abcdefgh"]
