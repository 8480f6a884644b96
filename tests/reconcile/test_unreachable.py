"""A job whose node Slurm has given up, or that squeue leaves out, may live on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcflow.model.state import AttemptState, Cause
from hpcflow.reconcile.classify_end import LISTED_AFTER_S, LOOK_COUNTS_S
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
    first, second = (desk.dir_of(launched).attempt(number).notice for number in (1, 2))
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
    notice = desk.dir_of(launched).attempt(1).notice
    for _ in range(2):
        desk.tick()
        assert not notice.exists()
        desk.clock.advance(LOOK_COUNTS_S)
    desk.tick()
    assert notice.exists()


def _slurm_whose_squeue_is_empty(desk: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.slurm, "queue", lambda *_: [])


def _watch(desk: Watched, seconds: float) -> list[str]:
    """The runs that are sent within so many seconds, with a round each half minute."""
    sent: list[str] = []
    for _ in range(int(seconds / 30)):
        sent += desk.tick().sent
        desk.clock.advance(30)
    return sent


@pytest.mark.parametrize("has_started", [False, True], ids=["PENDING", "RUNNING"])
@pytest.mark.parametrize("seconds", [200, 300, 1800])
def test_a_job_that_squeue_leaves_out_while_accounting_lists_it_is_not_sent_twice(
    desk: Watched, monkeypatch: pytest.MonkeyPatch, seconds: float, has_started: bool
) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=has_started)
    launched = desk.launch()
    desk.tick()
    with monkeypatch.context() as meanwhile:
        _slurm_whose_squeue_is_empty(desk, meanwhile)
        assert _watch(desk, seconds) == []
        assert desk.seen(launched.run_id).attempts[0].raw_state == "MISSING"
    assert _watch(desk, 600) == []
    (attempt,) = desk.seen(launched.run_id).attempts
    assert attempt.state is (AttemptState.RUNNING if has_started else AttemptState.QUEUED)
    desk.assert_rebuilt_alike(launched.run_id)


def test_a_record_of_accounting_that_nobody_closed_ends_after_an_hour(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = desk.launch()
    _slurm_whose_squeue_is_empty(desk, monkeypatch)
    assert _watch(desk, LISTED_AFTER_S) == []
    assert _watch(desk, 300) == [launched.run_id]
    first, _ = desk.seen(launched.run_id).attempts
    assert (first.cause, first.rule) == (Cause.VANISHED, "missing for 3600 s")


def _run_script(run_dir: RunDir, job_id: str) -> int:
    attempt = run_dir.attempt(1)
    job = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job_id, "SLURM_JOB_NODELIST": "n1"}
    with attempt.log.open("ab") as log:
        return subprocess.run(
            ["bash", str(attempt.script)], env=job, cwd=attempt.path, stdout=log, stderr=log
        ).returncode


def test_the_job_of_an_attempt_that_vanished_before_it_began_executes_nothing(
    desk: Watched,
) -> None:
    executed = desk.folder / "executed"
    desk.config.write_text(desk.config.read_text().replace('"true"', f'"touch", "{executed}"'))
    launched = desk.launch()
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")
    assert _watch(desk, 300) == [launched.run_id]
    run_dir = desk.dir_of(launched)
    assert _run_script(run_dir, launched.job_id) == 1
    assert f"job {launched.job_id} exits" in run_dir.attempt(1).log.read_text()
    assert not executed.exists()


def test_a_job_that_begins_while_it_is_taken_for_vanished_has_not(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = desk.launch()
    alive, desk.slurm = desk.slurm, FakeScheduler(desk.clock, cluster_name="devcluster")
    claim = desk.dir_of(launched).attempt(1).claim

    def begins(path: Path, _: bytes) -> None:
        claim.write_text(f"{launched.job_id}\n")
        raise FileExistsError(path)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("hpcflow.reconcile.unreachable.write_new", begins)
        while not claim.exists():
            assert _watch(desk, 30) == []
    desk.slurm = alive
    assert _watch(desk, 300) == []
    assert desk.alive() == [launched.job_id]


def test_where_no_seal_can_be_written_the_end_waits(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = desk.launch()
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")

    def full(path: Path, _: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("hpcflow.reconcile.unreachable.write_new", full)
        assert _watch(desk, 600) == []
        assert "No space left on device" in "\n".join(desk.tick().warnings)
    assert _watch(desk, 300) == [launched.run_id]
