"""Fixtures for all tests: the real parts, and a home that is nobody's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from hpcflow.testing.cluster.settings import DIRECTORY_VARIABLE

pytest_plugins = ["tests.cluster_fixture"]

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("hpcflow", deadline=None)
settings.load_profile("hpcflow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on a cluster begin first, for they take the longest; those of a file stay together.

    Of them the files come first that may take the longest: else one process is at such a file when
    the others have nothing left to do. Each process of xdist has a cluster of its own. One that
    HPCFLOW_CLUSTER_DIR names is there but once: then one process has all these tests. The users of
    all clusters are the same, and so are their crontabs: one process has all tests that use these.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "cluster" in fixtures and item.get_closest_marker("xdist_group") is None:
            name = "crontab" if "cron" in fixtures else item.path.as_posix()
            name = "cluster" if DIRECTORY_VARIABLE in os.environ else name
            item.add_marker(pytest.mark.xdist_group(name))
    longest_s: dict[Path, float] = {}
    for item in items:
        limit = item.get_closest_marker("timeout")
        limit_s = limit.args[0] if limit and item.get_closest_marker("xdist_group") else 0
        longest_s[item.path] = max(longest_s.get(item.path, 0), limit_s)
    items.sort(
        key=lambda item: (
            item.get_closest_marker("xdist_group") is None,
            -longest_s[item.path],
        )
    )


@pytest.fixture
def weird_tmp_path(tmp_path: Path) -> Path:
    """A folder whose name breaks whoever forgets to quote it."""
    path = tmp_path / "it's $(touch owned); \"here\" & 'there' *"
    path.mkdir()
    return path


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, for who writes and syncs thousands of files."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else tmp_path
    with TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty HPCFLOW_HOME, and an environment that names neither site nor ledger."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HPCFLOW_HOME", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HPCFLOW_SITE", "HPCFLOW_LEDGER", "SLURM_CONF", "SCRATCH"):
        monkeypatch.delenv(name, raising=False)
    yield folder
