"""A program that crashes at its start, twice and alike, is not sent a third time by a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.model.state import RunState
from hpcflow.requeue.policy import Action
from hpcflow.storage.layout import RunDir
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def crash(desk: Watched, run_dir: RunDir, attempt: int, error: str) -> None:
    """The attempt fails three seconds after its start, with a traceback."""
    (job_id,) = desk.alive()
    run_dir.attempt(attempt).log.write_text(
        f'Traceback (most recent call last):\n  File "/x/train.py", line 1, in <module>\n{error}\n'
    )
    desk.clock.advance(3)
    desk.end(job_id, "FAILED", exit_code=1)


def go_on(desk: Watched, run_id: str) -> None:
    """The pause after a failure passes, and the run is sent again."""
    assert desk.tick().decisions[run_id].rule == "backoff"
    desk.clock.advance(200)
    assert run_id in desk.tick().sent


def test_a_program_that_crashes_twice_alike_is_not_sent_a_third_time(desk: Watched) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    crash(desk, run_dir, 1, "OSError: [Errno 5] pid 4711")
    go_on(desk, launched.run_id)
    crash(desk, run_dir, 2, "OSError: [Errno 5] pid 815")
    decision = desk.tick().decisions[launched.run_id]
    assert (decision.action, decision.rule) == (Action.STOP, "same_crash")
    assert desk.seen(launched.run_id).run.state is RunState.FAILED
    desk.assert_rebuilt_alike(launched.run_id)
    assert desk.tick().looked_at == 0
    resumed = desk.resume(run_dir)
    crash(desk, run_dir, resumed.attempt, "OSError: [Errno 5] pid 99")
    assert desk.tick().decisions[launched.run_id].rule == "backoff", "a person says: once more"


def test_a_broken_node_alone_does_not_stop_a_run(desk: Watched) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    desk.slurm.start(launched.job_id, ["n2"])
    crash(desk, run_dir, 1, "RuntimeError: No CUDA GPUs are available")
    go_on(desk, launched.run_id)
    assert "#SBATCH --exclude=n2\n" in run_dir.attempt(2).script.read_text()


def test_crashes_that_differ_or_come_late_are_no_reason_to_stop(desk: Watched) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    crash(desk, run_dir, 1, "OSError: a")
    go_on(desk, launched.run_id)
    crash(desk, run_dir, 2, "OSError: b")
    go_on(desk, launched.run_id)
    desk.clock.advance(200)
    crash(desk, run_dir, 3, "OSError: b")
    assert desk.tick().decisions[launched.run_id].rule != "same_crash"
