"""The map of the code leads to places that exist, and leaves no part of the house out."""

from __future__ import annotations

import pkgutil
import re
from configparser import ConfigParser
from pathlib import Path

import pytest

import hpcflow

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
