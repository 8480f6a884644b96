"""A person with mirrored runs, on one or two clusters in memory."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.restore.owner import Owner, home_of


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


@pytest.fixture
def other(owner: Owner) -> Owner:
    """Another cluster, with a scratch and a home of its own, and the same bucket."""
    other = home_of(owner.folder / "other")
    other.slurm = FakeScheduler(other.clock, cluster_name="elsewhere")
    other.site = other.site.model_copy(
        update={"name": "elsewhere", "cluster_name": "elsewhere", "mirror": None}
    )
    other.remote = owner.remote
    other.clock.advance(timedelta(hours=3).total_seconds())
    return other
