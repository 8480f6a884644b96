"""Run directories for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.harness import RunFolder, run, weights
from tests.runtime.program import BATCHES, EPOCHS

Undisturbed = Callable[[int], dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """An empty run directory, under a name as people give them."""
    return RunFolder(tmp_path / "a run's $folder;")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """World size -> the final state of a training that nobody disturbed."""

    @cache
    def of(world_size: int) -> dict[str, Any]:
        folder = RunFolder(tmp_path_factory.mktemp("undisturbed"))
        assert run(folder, world_size) == [0] * world_size
        return weights(folder, EPOCHS * BATCHES)

    return of
