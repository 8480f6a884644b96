"""A person with mirrored runs, on a cluster in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.restore.owner import Owner


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)
