"""Fixtures for all tests: the real parts, and a home that is nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["tests.cluster_fixture"]


@pytest.fixture
def weird_tmp_path(tmp_path: Path) -> Path:
    """A folder whose name breaks whoever forgets to quote it."""
    path = tmp_path / "it's $(touch owned); \"here\" & 'there' *"
    path.mkdir()
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty HPCFLOW_HOME, and an environment that names neither site nor ledger."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HPCFLOW_HOME", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HPCFLOW_SITE", "HPCFLOW_LEDGER", "SLURM_CONF", "SCRATCH"):
        monkeypatch.delenv(name, raising=False)
    yield folder
