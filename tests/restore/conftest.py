"""A person with mirrored runs, on one or two clusters in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.restore.owner import Owner, elsewhere


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


@pytest.fixture
def other(owner: Owner) -> Owner:
    return elsewhere(owner)
