"""A person at the terminal of a cluster that is in memory, where jobs wait until they are told."""

from __future__ import annotations

import pytest

from hpcflow.clock import SystemClock
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.cli.desk import Desk


class ClusterDesk(Desk):
    """``hpcflow`` on the development cluster's site, with a scheduler in memory."""

    slurm: FakeScheduler

    @classmethod
    def at(cls, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> ClusterDesk:
        """The same person, elsewhere."""
        there = cls(desk.folder, desk._capfd)
        there.slurm = FakeScheduler(SystemClock(), starts_at_once=False, cluster_name="devcluster")
        monkeypatch.setenv("HPCFLOW_SITE", "devcluster")
        monkeypatch.setenv("SCRATCH", str(desk.folder.parent / "scratch"))
        for module in ("launch.run", "launch.connecting"):  # the first imports from the second
            monkeypatch.setattr(f"hpcflow.{module}.connect_scheduler", lambda *_: there.slurm)
        return there
