"""Programs that write checkpoints in their own way, and whoever adopts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.adoption.bench import Bench
from tests.runtime.harness import RunFolder


@pytest.fixture
def bench(folder: RunFolder, tmp_path: Path) -> Bench:
    """A run directory, and a folder for the program, under names as people give them."""
    out = tmp_path / "the program's $out;\n"
    out.mkdir()
    return Bench(folder, out)
