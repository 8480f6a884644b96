"""The list of commands, their help and the docs say the same."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

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


def test_shells_complete_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hpcflow.cli.main"],
        env={
            "PATH": "/usr/bin:/bin",
            "_HPCFLOW_COMPLETE": "bash_complete",
            "COMP_WORDS": "hpcflow re",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["plain,render", "plain,resume"]
