"""A job whose node Slurm has given up may live on; it is told to leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.observe.judge import LOOK_COUNTS_S
from hpcflow.storage.layout import RunDir
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize(
    ("raw_state", "is_told"), [("NODE_FAIL", True), ("BOOT_FAIL", True), ("PREEMPTED", False)]
)
def test_what_may_run_on_behind_a_dead_network_is_told_to_leave_before_the_next_is_sent(
    desk: Watched, raw_state: str, is_told: bool
) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, raw_state, checkpoint=100)
    desk.tick()
    first, second = (RunDir(launched.run_dir).attempt(number).notice for number in (1, 2))
    assert first.exists() == is_told
    if is_told:
        assert len(desk.alive()) == 0, "nothing was sent in the same breath"
        desk.clock.advance(60)
        desk.tick()
    assert len(desk.alive()) == 1
    assert not second.exists()


def test_a_job_that_nobody_knows_any_more_may_run_on_too(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")
    notice = RunDir(launched.run_dir).attempt(1).notice
    for _ in range(2):
        desk.tick()
        assert not notice.exists()
        desk.clock.advance(LOOK_COUNTS_S)
    desk.tick()
    assert notice.exists()
