"""The runtime needs Python and nothing else, and an old Python does."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

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
