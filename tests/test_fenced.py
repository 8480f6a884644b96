"""The fenced blocks of all pages name commands that exist, and tests/fenced.py reads them."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest

from hpcflow.cli.main import COMMANDS
from tests.fenced import ROOT, alike, blocks_of, pages_of

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
#: The pages whose commands run in tests.
FOLLOWED = ["README.md", *pages_of("Tutorials"), *pages_of("How-to guides")]


def typed_on(page: str) -> list[str]:
    """Every call of hpcflow on a page, in a block or in a sentence."""
    lines = [
        line
        for block in blocks_of(page)
        if not block.text.startswith("#!")
        for line in (
            [command for command, _ in block.commands()]
            if block.has_commands
            else block.text.replace("\\\n", "").splitlines()
        )
    ]
    text = (ROOT / page).read_text()
    sentences = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.S | re.M)
    lines += [" ".join(each.split()) for each in re.findall(r"`(hpcflow [^`]+)`", sentences)]
    return [line for line in lines if re.match(r"hpcflow [a-z]", line) and "…" not in line]


def options_of(words: list[str]) -> set[str]:
    """The options of the command that ``words`` call."""
    module, _ = COMMANDS[words[0]]
    command: click.Command = import_module(module).command
    for word in words[1:]:
        if not isinstance(command, click.Group) or word not in command.commands:
            break
        command = command.commands[word]
    return {"--help", *(option for param in command.params for option in param.opts)}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_that_a_page_names_is_there(page: str) -> None:
    wrong = []
    for line in typed_on(page):
        words = shlex.split(re.sub(r"\\?[<>|;&].*| -- .*", "", line), comments=True)[1:]
        if words[0] not in COMMANDS:
            wrong.append(line)
            continue
        named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        wrong += [f"{line}: {option}" for option in named - options_of(words)]
    assert wrong == []


def test_the_pages_were_read() -> None:
    assert len(typed_on("README.md")) > 20
    assert "hpcflow sweep install --scrontab" in typed_on("docs/sweeps.md")


@pytest.mark.parametrize("page", FOLLOWED)
def test_commands_are_in_blocks_that_are_run_or_say_why_not(page: str) -> None:
    hidden, unexplained = [], []
    for block in blocks_of(page):
        unexplained += [str(block)] if ("notest" in block.words) is (block.why_not is None) else []
        is_program = block.text.startswith("#!")
        if not (block.has_commands or is_program) and re.search(
            r"^(\$|hpcflow) ", block.text, re.M
        ):
            hidden.append(str(block))
    assert (hidden, unexplained) == ([], [])


def test_few_blocks_are_not_run() -> None:
    blocks = [block for page in FOLLOWED for block in blocks_of(page) if block.has_commands]
    assert sum("notest" in block.words for block in blocks) < len(blocks) / 2


def test_blocks_files_and_commands_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fenced.ROOT", tmp_path)
    (tmp_path / "page.md").write_text(
        "A\n```yaml\n# config.yaml\nname: a\n```\n\n"
        "```console\n$ cd a\n$ hpcflow ls \\\n  --all\nRUN  STATE\n...\n$ ls\n```\n"
        "<!-- notest: needs root -->\n```bash notest\nmake all\n```\n"
        "- B\n\n  ```bash\n  true '\n  '\n  true # end\n  ```\n"
        "```bash\n#!/bin/bash\nexit\n```\n"
    )
    config, console, notest, bash, program = blocks_of("page.md")
    assert (config.file, config.line, config.is_run) == ("config.yaml", 3, False)
    shown = [("cd a", ""), ("hpcflow ls \\\n  --all", "RUN  STATE\n...\n"), ("ls", "")]
    assert (list(console.commands()), console.is_run) == (shown, True)
    assert (notest.why_not, notest.is_run) == ("needs root", False)
    assert [command for command, _ in bash.commands()] == ["true '\n'", "true # end"]
    assert not program.has_commands


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a  b\n", "a b\n"),
        ("digits-20260101-abcdefgh  running\n", "digits-20261130-3kd2abcd  running\n"),
        ("took 1m 24s at 2026-01-01 10:00:00 UTC\n", "took 3s at 2026-11-30 08:12:13 UTC\n"),
        ("  run directory  /home/ada/x\n", "  run directory  /dev/shm/y/z\n"),
        ("3.1 TiB free\n", "700 GiB free\n"),
        ("first\n...\nlast\n", "first\nsecond\nthird\nlast\n"),
        ("first\n...\nlast\n", "first\nlast\n"),
        ("params lr=0.1 ...\n", "params lr=0.2 and more\n"),
    ],
)
def test_what_varies_is_alike(shown: str, printed: str) -> None:
    assert alike(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("running\n", "completed\n"),
        ("first\nlast\n", "first\nsecond\nlast\n"),
        ("first\n", ""),
        ("params lr=0.1 ...\n", "args lr=0.2 and more\n"),
        ("10 trials\n", "ten trials\n"),
    ],
)
def test_another_text_is_not(shown: str, printed: str) -> None:
    assert not alike(shown, printed)
