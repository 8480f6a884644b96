"""The map of the code leads to places that exist, and leaves no part of the house out."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

import hpcflow
from hpcflow.model import journal

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hpcflow"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
(HOUSE,) = re.findall(r"^```\n(hpcflow/\n.*?)^```$", PAGE, re.S | re.M)

#: What the page says of a run directory, or of git, and not of this tree.
OF_A_RUN = {"manifest.json", "events.jsonl", "__init__.py", "code/", "uncommitted.diff"}
OF_A_RUN |= {"run.json", "params.json", "runtime/"}
OF_A_RUN |= {"safe.directory"}

QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))
PATHS = sorted(
    word
    for word in QUOTED
    if re.fullmatch(r"[\w./-]+(/|\.(py|md|cfg|yaml|json|jsonl))", word) and word not in OF_A_RUN
)
NAMES = sorted(
    word
    for word in QUOTED
    if re.fullmatch(r"\w+(\.\w+)+", word) and word not in {*PATHS, *OF_A_RUN}
)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_on_the_page_exists(path: str) -> None:
    assert (ROOT / path).exists() or (PACKAGE / path).exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_module_and_function_on_the_page_exists(name: str) -> None:
    full = name if name.startswith("hpcflow.") else f"hpcflow.{name}"
    assert pkgutil.resolve_name(full) is not None


def test_the_page_was_read() -> None:
    assert {"tests/projection/", "storage/runtime_copy.py"} <= set(PATHS)
    assert {"hpcflow.runtime", "launch.plan.make_plan"} <= set(NAMES)


def test_every_file_and_folder_of_the_house_is_where_it_is_said_to_be() -> None:
    room = PACKAGE
    for line in HOUSE.splitlines():
        words = re.findall(r"(?<![\w/])[\w/]+?(?:\.py\b|/(?=[\s;,]|$))", line)
        if re.match(r"  \w+/", line):
            room = PACKAGE / words[0]
        for word in words:
            places = (ROOT / word, PACKAGE / word, room / word)
            assert any(place.exists() for place in places), f"{word} in: {line}"


def test_every_part_of_the_package_is_in_the_house() -> None:
    for module in pkgutil.iter_modules(hpcflow.__path__):
        name = f"{module.name}/" if module.ispkg else f"{module.name}.py"
        assert re.search(rf"(?<![\w/]){re.escape(name)}", HOUSE), name


def test_the_import_contracts_name_every_part_of_the_package() -> None:
    parts = {each.name for each in pkgutil.iter_modules([str(PACKAGE)], "hpcflow.")}
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")

    def named(contract: str, key: str) -> set[str]:
        return set(config[f"importlinter:contract:{contract}"][key].split())

    assert named("runtime", "forbidden_modules") == parts - {"hpcflow.runtime"}
    assert named("testing", "source_modules") == parts - {"hpcflow.testing"}
    layers = config["importlinter:contract:layers"]["layers"].replace("|", " ").split()
    assert set(layers) == parts - {"hpcflow.runtime", "hpcflow.testing"}


def kinds_asked_for(module: ast.Module) -> Iterator[ast.expr]:
    """What a module asks for by ``isinstance``, ``match`` or ``type``."""
    for each in ast.walk(module):
        if isinstance(each, ast.MatchClass):
            yield each.cls
        elif isinstance(each, ast.Call) and ast.unparse(each.func) == "isinstance":
            yield each.args[1]
        elif isinstance(each, ast.Compare) and ast.unparse(each.left).startswith("type("):
            yield each


def asks_for_records(path: Path) -> bool:
    """Whether a module asks of which kind a record of a run's journal is."""
    module = ast.parse(path.read_text())
    kinds = {
        alias.asname or alias.name
        for each in ast.walk(module)
        if isinstance(each, ast.ImportFrom) and each.module == "hpcflow.model.journal"
        for alias in each.names
        if hasattr(getattr(journal, alias.name), "to_line")
    }
    asked = (name for each in kinds_asked_for(module) for name in ast.walk(each))
    return any(isinstance(name, ast.Name) and name.id in kinds for name in asked)


def test_only_the_history_asks_of_which_kind_a_record_of_a_journal_is() -> None:
    asking = {path for path in PACKAGE.rglob("*.py") if asks_for_records(path)}
    assert asking == set((PACKAGE / "history").glob("*.py")) - {PACKAGE / "history/__init__.py"}
