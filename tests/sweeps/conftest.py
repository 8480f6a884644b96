"""What the tests of the sweeps have in common."""

from __future__ import annotations

import pytest

from hpcflow.launch import array, plan
from hpcflow.storage import journal, rundir
from hpcflow.sweeps import round as round_of_a_sweep
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.killing import Killer


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    """Kills a round before or after anything that it writes or sends."""
    killer = Killer(monkeypatch)
    for name in ("append", "append_all"):
        killer.watch(journal, name)
    for name in ("submit", "cancel"):
        killer.watch(FakeScheduler, name)
    killer.watch(plan, "create_run")
    killer.watch(array, "write_array")
    killer.watch(round_of_a_sweep, "append")
    killer.watch(rundir, "make_record")
    return killer
