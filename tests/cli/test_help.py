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


def test_help_lists_every_command_once_under_what_people_want_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    sections: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line
        elif line.startswith("  ") and line[2] != " " and line.split()[0] in COMMANDS:
            sections.setdefault(title, []).append(line.split()[0])
    assert sorted(name for names in sections.values() for name in names) == sorted(COMMANDS)
    assert sections["Submit runs:"][0] == "run"
    assert len(sections) > 4


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
        # The others are for a person who sits there.
        assert "--json" in options or name in ("completion", "setup", "ssh", "tensorboard")
        options_without_help = [
            param.opts
            for param in leaf.params
            if isinstance(param, click.Option) and not (param.help or param.hidden)
        ]
        assert options_without_help == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("shwo", "show"),
        ("cancle", "cancel"),
        ("relaese", "release"),
        ("delete", "cancel"),
        ("delte", "cancel"),
        ("submit", "run"),
        ("squeue", "ls"),
        ("stauts", "show"),
    ],
)
def test_a_misspelt_command_and_one_of_another_tool_is_named(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed, "x"]) == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


def test_a_word_that_is_like_no_command_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frobnicate"]) == 2
    assert "See: hpcflow --help" in capsys.readouterr().err


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from hpcflow.cli.main import main; main(['--help']);"
        "print([m for m in ('sqlalchemy', 'pydantic', 'jinja2', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.usefixtures("home")
def test_ls_without_news_imports_no_models() -> None:
    code = (
        "import sys; from hpcflow.cli.main import main; main(['ls']);"
        "print([m for m in ('sqlalchemy', 'pydantic', 'jinja2', 'rich') if m in sys.modules])"
    )
    main(["ls"])  # it makes the ledger's tables
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


def test_shells_complete_sites(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "mine.yaml").write_text("broken: [")
    assert completed("hpcflow run config.yaml --site mi", tmp_path) == ["mine"]
    assert completed("hpcflow site check per", tmp_path) == ["perlmutter"]
    shown = completed("hpcflow site show ", tmp_path)
    assert {"mine", "local", "frontier"} <= set(shown)
    assert completed("hpcflow run config.yaml --site ./my", tmp_path) == ["file,./my"]


def test_what_help_says_to_begin_with_works_wherever_hpcflow_is_installed(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my.yaml").write_text("name: small\ncommand: [hostname]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    assert main(["--help"]) == 0
    begin = capsys.readouterr().out.split("Begin with:")[1].split("\n\n")[0]
    commands = [each.replace("CONFIG", "my.yaml").split() for each in begin.split("; then")]
    assert len(commands) == 2
    for program, *args in commands:
        assert program == "hpcflow"
        assert main(args) == 0
    assert not home.exists()


def test_shells_complete_commands_and_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("digits-20260101-abcdefgh", "other-20260101-abcdefgh"):
        (tmp_path / "runs" / name).mkdir()
    assert completed("hpcflow re", tmp_path) == ["render", "resume", "release", "restore"]
    assert completed("hpcflow show di", tmp_path) == ["digits-20260101-abcdefgh"]
    assert completed("hpcflow cancel o", tmp_path) == ["other-20260101-abcdefgh"]
