"""Messages and help texts name pages of the documentation by their paths: an installed hpcflow has
them in a folder that its users do not know."""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from hpcflow.cli.main import COMMANDS
from hpcflow.resources import install_extra

TREE = Path(__file__).resolve().parents[1]
SOURCES = {path: path.read_text() for path in sorted((TREE / "hpcflow").rglob("*.py"))}


def helps(command: click.Command) -> Iterator[str]:
    yield command.help or ""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from helps(each)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_no_help_text_names_a_page_without_its_folder(name: str) -> None:
    command = import_module(COMMANDS[name][0]).command
    assert [text for text in helps(command) if "docs/" in text or ".md" in text] == []


def test_no_message_names_a_page_without_its_folder() -> None:
    named = []
    for path, source in SOURCES.items():
        if "docs/" not in source:
            continue
        nodes = list(ast.walk(ast.parse(source)))
        docstrings = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
        named += [
            f"{path}:{each.lineno}: {each.value}"
            for each in nodes
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
            if "docs/" in each.value and id(each) not in docstrings
        ]
    assert named == []


def test_every_page_that_is_named_exists() -> None:
    named = {
        page.value
        for source in SOURCES.values()
        if "doc_page(" in source or "more_in(" in source
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"doc_page", "more_in"}
        for page in call.args
        if isinstance(page, ast.Constant) and isinstance(page.value, str)
    }
    assert "installation" in named
    assert [page for page in named if not (TREE / "docs" / f"{page}.md").is_file()] == []


def test_hpcflow_is_never_fetched_from_pypi_by_its_name() -> None:
    """PyPI has another program of this name. An extra is safe: what is installed satisfies it."""
    for path, source in SOURCES.items():
        assert "--upgrade hpcflow" not in source, path
        assert "pip install hpcflow" not in source, path
        assert "pip install 'hpcflow" not in source or path.name == "resources.py", path


def test_an_extra_is_added_to_the_python_that_has_hpcflow() -> None:
    command, page = install_extra("s3").split("; if it has no pip: ")
    assert shlex.split(command) == [sys.executable, "-m", "pip", "install", "hpcflow[s3]"]
    assert Path(page).is_file()
