"""The runtime needs Python and nothing else, and an old Python does."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hpcflow

PACKAGE = Path(hpcflow.__file__).parent

LOADED = """
import json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import hpcflow.runtime
for module in pkgutil.iter_modules(hpcflow.runtime.__path__):
    __import__("hpcflow.runtime." + module.name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_a_copy_of_it_imports_only_the_standard_library(tmp_path: Path) -> None:
    """As in a run directory: hpcflow/__init__.py and hpcflow/runtime/, no site-packages."""
    shutil.copytree(PACKAGE / "runtime", tmp_path / "hpcflow" / "runtime")
    shutil.copy(PACKAGE / "__init__.py", tmp_path / "hpcflow")

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOADED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = {name for name in json.loads(done.stdout) if not name.startswith("hpcflow")}
    foreign = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign == set()
    assert "hashlib" in loaded, "this test would not see what is imported"


def test_its_syntax_is_that_of_python_3_8() -> None:
    for path in [PACKAGE / "__init__.py", *(PACKAGE / "runtime").rglob("*.py")]:
        ast.parse(path.read_text(), str(path), feature_version=(3, 8))


#: What came after Python 3.8, is not syntax, and is easily written without a thought.
LATER_METHODS = {"removeprefix", "removesuffix", "is_relative_to", "readlink", "with_stem"}
LATER_NAMES = {"pairwise", "cache", "lcm", "batched", "StrEnum", "UTC"}
GENERICS = {"list", "dict", "set", "frozenset", "tuple", "type"}


def later_than_3_8(tree: ast.AST) -> list[str]:
    """Calls and names that an old Python does not know: each fails only where it is executed."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id == "zip" and node.keywords:
                found.append(f"{node.lineno}: zip(strict=)")
            if (
                isinstance(called, ast.Attribute)
                and called.attr in LATER_METHODS
                and ast.unparse(called.value) != "os"  # os.readlink is old, Path.readlink is not
            ):
                found.append(f"{node.lineno}: {called.attr}")
            if isinstance(called, ast.Subscript) and getattr(called.value, "id", "") in GENERICS:
                found.append(f"{node.lineno}: {ast.unparse(called)}()")
        if isinstance(node, ast.ImportFrom):
            found += [
                f"{node.lineno}: {each.name}" for each in node.names if each.name in LATER_NAMES
            ]
    return found


def test_it_calls_nothing_that_python_3_8_does_not_have() -> None:
    found = {
        str(path.relative_to(PACKAGE)): later
        for path in (PACKAGE / "runtime").rglob("*.py")
        if (later := later_than_3_8(ast.parse(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "zip(a, b, strict=False)",
        "set[int]()",
        "x.removeprefix('y')",
        "from itertools import pairwise",
    ],
)
def test_what_came_later_is_found(text: str) -> None:
    assert later_than_3_8(ast.parse(text))
