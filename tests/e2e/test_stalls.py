"""Stalls on a real cluster: what hangs is ended, and its next attempt goes on and completes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.model.journal import Stall
from hpcflow.reconcile.attempt_events import time_there
from hpcflow.storage import journal
from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted, start

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: Goes on until its first attempt hangs, in the midst of a train step.
HANGS = """
import os, time
from hpcflow import runtime

run = runtime.start()
run.restore()
for train_step in run.train_steps(20):
    run.log(loss=1 / train_step)
    time.sleep(0.2)
    while train_step == 12 and os.environ["HPCFLOW_ATTEMPT"] == "1":
        time.sleep(600)
run.finish()
"""
REPORTS = """
name: hangs
script: hangs.py
launch: {framework: none, launcher: none}
resources: {time_limit: 10m}
checkpoint: {every_train_steps: 10, notice: 2s}
retry: {stall_after: 8s, stall_factor: 2, backoff: 1s}
"""
PRINTS = """
name: prints
command: [bash, -c, 'echo begun; sleep 1; echo on; [[ $HPCFLOW_ATTEMPT != 1 ]] || sleep 600']
launch: {framework: none, launcher: none}
resources: {time_limit: 10m}
checkpoint: {notice: 2s}
retry: {stall_after: 8s, stall_log: true, backoff: 1s}
"""


@pytest.fixture
def daemon(hpcflow: Hpcflow) -> Iterator[Path]:
    """``hpcflow daemon`` of the same user, until the test is over; what it says."""
    log = hpcflow.home.parent / "daemon.log"
    with log.open("w") as file:
        process = hpcflow.user.popen(
            ["hpcflow", "daemon", "--interval", "1"],
            env=hpcflow.env,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        yield log
        process.terminate()
        assert process.wait(timeout=120) == 0


def test_what_hangs_is_ended_and_sent_again(hpcflow: Hpcflow, daemon: Path) -> None:
    """One that reports and one that only prints, at the same time."""
    hpcflow.write_config("hangs.py", HANGS)
    configs = [hpcflow.write_config("hangs.yaml", REPORTS)]
    configs.append(hpcflow.write_config("prints.yaml", PRINTS))
    sent = [hpcflow.json("run", each, "--site", "devcluster") for each in configs]
    run_ids = [each["run_id"] for each in sent]
    runs = [Counted(each["run_id"], Path(each["run_dir"]), hpcflow.home) for each in sent]

    poll(
        lambda: all(each.causes[-1:] == ["completed"] for each in runs),
        150,
        lambda: f"they never completed: {daemon.read_text()}",
    )
    said = daemon.read_text()
    looks = [hpcflow.json("show", run_id) for run_id in run_ids]
    for run_id, shown in zip(run_ids, looks, strict=True):
        causes = [attempt["cause"] for attempt in shown["attempts"]]
        assert causes == ["stalled", "completed"]
        assert "no progress for" in shown["attempts"][0]["rule"]
        assert f"{run_id}  notice  (" in said
        assert f"{run_id}  cancel  (silent: no progress for" in said
    reports = looks[0]
    assert (reports["train_step"], reports["attempts"][1]["resume_from"]) == (
        20,
        "checkpoints/000000010",
    )
    entries = hpcflow.json("history", run_ids[0])["entries"]
    stalls = [(each["attempt"], each["action"]) for each in entries if each["kind"] == "stall"]
    assert stalls == [(1, "notice"), (1, "cancel")]
    assert "cancel (silent): no progress for" in hpcflow("history", run_ids[0]).stdout
    assert hpcflow("ledger", "check").returncode == 0


@pytest.mark.parametrize(("minutes_ago", "cause"), [(0, "stalled"), (30, "cancelled")])
def test_a_scancel_long_after_a_cancel_that_never_came_is_a_persons(
    hpcflow: Hpcflow, minutes_ago: float, cause: str
) -> None:
    """The daemon was killed before it sent its own, and the job went on."""
    run = start(hpcflow)
    run.wait_training()
    run_dir, ago = run.run_dir, timedelta(minutes=minutes_ago)
    notice, job_id = run_dir.attempt(1).notice, run.job_id
    run.tell("stick")
    hpcflow.user.run(["sh", "-c", f"echo stalled > {notice}"])
    files_at = time_there(run_dir, 1)
    assert files_at is not None
    said = Stall(
        at=datetime.now(timezone.utc) - ago,
        attempt=1,
        action="cancel",
        rule="silent",
        why="no progress for 31m",
        silent_s=1860,
        signs=1,
        longest_s=1,
        files_at=files_at - ago,
    )
    journal.append(run_dir, said)
    hpcflow.user.run(["scancel", job_id])
    poll(
        lambda: hpcflow.json("show", run.run_id)["attempts"][0]["cause"] == cause,
        120,
        lambda: f"{run.records[-3:]}",
        every_s=1,
    )
    assert notice.read_text() == "TERM\n", "the job script has its own word for it"
