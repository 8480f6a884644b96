"""What the tests of the sweeps have in common."""

from __future__ import annotations

import pytest

from hpcflow.launch import array, plan
from hpcflow.storage import journal, rundir
from hpcflow.sweeps import round as round_of_a_sweep
from hpcflow.sweeps.plots.drawing import Plots, write_plots
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.killing import Killer
from tests.sweeps import drawn


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


@pytest.fixture(scope="session")
def plots(tmp_path_factory: pytest.TempPathFactory) -> Plots:
    """All figures of a sweep, in a folder that was to be made."""
    folder = tmp_path_factory.mktemp("plots") / "it's $(touch owned); *" / "new"
    return write_plots("digits-1", drawn.of_one_objective(), folder)


@pytest.fixture(scope="session")
def plots_of_two(tmp_path_factory: pytest.TempPathFactory) -> Plots:
    """All figures of a sweep with two objectives, in a folder whose name is no URL."""
    folder = tmp_path_factory.mktemp("plots") / "it's #1 100%?"
    return write_plots("digits-1", drawn.of_two_objectives(), folder)
