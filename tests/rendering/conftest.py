"""The bench on which scripts are executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rendering.executed import Bench


@pytest.fixture
def bench(weird_tmp_path: Path) -> Iterator[Bench]:
    """A run directory under a path that breaks whoever forgets to quote it."""
    yield Bench(weird_tmp_path)
    assert not list(weird_tmp_path.parent.rglob("owned"))
