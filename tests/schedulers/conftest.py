"""A user of the development cluster, and a folder in which this user's jobs may write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.testing.cluster import Cluster, User


@pytest.fixture(scope="session")
def researcher(cluster: Cluster) -> User:
    """An ordinary user of the account ``physics``."""
    return cluster.user("hpcf-ada")


@pytest.fixture
def directory(researcher: User) -> Iterator[Path]:
    """A fresh folder on the user's scratch; jobs that still use it have been cancelled."""
    folder = Path(tempfile.mkdtemp(prefix="schedulers-", dir=researcher.scratch))
    shutil.chown(folder, researcher.name)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
