"""The daemon is killed before or after anything that it does; the next one makes it good."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from hpcflow.launch import submission
from hpcflow.model.state import Cause
from hpcflow.requeue.stalls import checking as stalls
from hpcflow.requeue.stalls.watch import WatchFile
from hpcflow.storage import journal
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.killing import Killer
from tests.requeue.standbys import begins
from tests.requeue.training import MINUTE, Training
from tests.requeue.watched import Watched


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    killer = Killer(monkeypatch)
    for name in ("append", "append_all"):
        killer.watch(journal, name)
    for name in ("submit", "cancel"):
        killer.watch(FakeScheduler, name)
    return killer


def each_moment(killer: Killer, folder: Path) -> Iterator[tuple[int, Path]]:
    """A folder for each moment, and the moment; until whatever is armed is over before it comes."""
    for moment in count(1):
        (folder / str(moment)).mkdir()
        killer.aim_at(moment)
        yield moment, folder / str(moment)
        if not killer.has_struck:
            return


def test_the_next_tick_leaves_one_job(tmp_path: Path, killer: Killer) -> None:
    for moment, folder in each_moment(killer, tmp_path):
        desk = Watched(folder)
        launched = desk.launch()
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
        with killer.armed():
            desk.tick()
        for _ in range(3):
            desk.tick()
            desk.clock.advance(400)
        assert len(desk.alive()) == 1, f"killed at moment {moment}"
    assert moment > 8


@pytest.mark.parametrize(("ends_as", "alive"), [("PREEMPTED", 2), ("COMPLETED", 0), ("FAILED", 0)])
def test_there_is_one_standby_and_then_one_attempt(
    tmp_path: Path, killer: Killer, ends_as: str, alive: int
) -> None:
    killer.watch(submission, "seal")
    for moment, folder in each_moment(killer, tmp_path):
        desk = Watched(folder)
        desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
        desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
        launched = desk.launch()
        desk.slurm.start(launched.job_id)
        begins(desk, launched, 1, launched.job_id)
        for _ in range(3):
            with killer.armed():
                desk.tick()
        desk.clock.advance(31)
        desk.tick()
        assert len(desk.alive()) == 2, f"killed at moment {moment}"
        desk.end(launched.job_id, ends_as, exit_code=0 if ends_as == "COMPLETED" else 1)
        with killer.armed():
            desk.tick()
        for _ in range(3):
            desk.tick()
            desk.clock.advance(5)
        if ends_as == "PREEMPTED":
            (job_id,) = desk.alive()
            last = desk.seen(launched.run_id).attempts[-1]
            assert last.job_id == job_id, f"killed at moment {moment}"
            desk.slurm.start(job_id)
            begins(desk, launched, last.attempt, job_id)
            desk.tick()
        assert len(desk.alive()) == alive, f"killed at moment {moment}"
        desk.cancel(desk.dir_of(launched))
        assert desk.alive() == []
    assert moment > 8


def test_a_stall_still_ends_as_one(tmp_path: Path, killer: Killer) -> None:
    killer.watch(stalls, "_give_notice")
    killer.watch(WatchFile, "save")
    for moment, folder in each_moment(killer, tmp_path):
        desk = Training(folder)
        patience = "retry: {stall_after: 4m, stall_factor: 1}\n"
        desk.config.write_text(desk.config.read_text() + patience)
        launched = desk.launch()
        desk.trains(launched, 1)
        desk.waits(3)
        was_noticed = False
        for _ in range(6):
            desk.clock.advance(MINUTE)
            with killer.armed():
                desk.tick()
            was_noticed = was_noticed or desk.files(launched).notice.exists()
        attempts = desk.seen(launched.run_id).attempts
        assert attempts[0].cause is Cause.STALLED, f"killed at moment {moment}"
        assert was_noticed, f"killed at moment {moment}"
        assert desk.acts(launched) == ["notice", "cancel"], f"killed at moment {moment}"
        assert len(desk.alive()) == 1
    assert moment > 16
