"""Scratch is purged, or the whole cluster gone: what was mirrored is trained to its end."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import read_run
from hpcflow.testing.cluster import S3, User, poll
from tests.e2e.conftest import TRAINING, TWO_NODES, Hpcflow, newcomer, saves
from tests.e2e.counted import Counted, take_all_nodes, watch
from tests.e2e.test_main_job import assert_same, weights

pytestmark = [pytest.mark.cluster, pytest.mark.s3, pytest.mark.timeout(1200)]

#: Of 368 train steps; twice as long as it takes to preempt it is left.
HALF_WAY = 150
UNDER_WAY = ("submitting", "queued", "running", "waiting")


def _preempted(hpcflow: Hpcflow, grace: User, url: str) -> dict[str, Any]:
    """The digits training on two nodes, preempted when it has done more than half."""
    run: dict[str, Any] = hpcflow.json(
        "run",
        hpcflow.digits,
        *TWO_NODES,
        *TRAINING,
        *("--set", "resources.partition=spot", "--set", "resources.gpus_per_node=1"),
        *("--set", f"mirror={url}"),
    )

    poll(lambda: max(saves(run), default=0) >= HALF_WAY, 300, "it never saved")
    take_all_nodes(grace)
    wait_state(hpcflow, run["run_id"], "waiting")
    return run


def wait_state(hpcflow: Hpcflow, run_id: str, state: str) -> Any:
    """What ``show`` says of a run once it is in ``state``."""
    shown: Any = None

    def is_there() -> bool:
        nonlocal shown
        shown = hpcflow.json("show", run_id)
        assert shown["state"] in (state, *UNDER_WAY), str(shown)[-2000:]
        return bool(shown["state"] == state)

    poll(is_there, 240, lambda: f"{state}: {str(shown)[-2000:]}", every_s=1)
    return shown


def with_scratch_of_its_own(hpcflow: Hpcflow, environ: dict[str, str]) -> Hpcflow:
    """The same person with an empty home, and another scratch."""
    other = newcomer(hpcflow.user, hpcflow.software)
    scratch = other.home.parent / "scratch"
    hpcflow.user.run(["mkdir", "-m", "700", str(scratch)])
    return replace(other, env={**other.env, **environ, "SCRATCH": str(scratch)})


def test_what_is_in_the_bucket_is_trained_to_the_same_end(
    hpcflow: Hpcflow, grace: User, s3_server: S3, undisturbed: dict[str, Any]
) -> None:
    """By an empty home with another scratch, from the bucket alone; and where the run directory was
    deleted, by the daemon. Both at once, from one preempted run."""
    environ, bucket = s3_server.env(), s3_server.create_bucket(f"e2e-{secrets.token_hex(6)}")
    hpcflow = replace(hpcflow, env={**hpcflow.env, **environ})
    url = f"s3://{bucket}/runs"
    run = _preempted(hpcflow, grace, url)
    run_id, there = run["run_id"], f"{url}/{run['run_id']}"
    hpcflow("mirror", "--once")
    newest = max(int(path.name) for path in RunDir(Path(run["run_dir"])).checkpoints.glob("[0-9]*"))
    other = with_scratch_of_its_own(hpcflow, environ)

    refused = other("restore", "--from", there, "--site", "devcluster", check=False)
    assert refused.returncode == 2
    assert "may be active on" in refused.stderr
    hpcflow("hold", run_id)
    hpcflow("mirror", "--once")
    restored = other.json("restore", "--from", there, "--site", "devcluster")
    assert restored["is_from_elsewhere"]
    run_dir = Home(other.home).run_dir(restored["run_dir"])
    assert run_dir.path.is_relative_to(other.env["SCRATCH"])
    assert read_run(run_dir).mirror is not None
    shown = other.json("show", run_id)
    assert [attempt["cause"] for attempt in shown["attempts"]] == ["preempted"]
    assert shown["next_action"] == "held"
    other("resume", run_id)

    hpcflow("release", run_id)
    hpcflow("mirror", "--once")
    hpcflow.user.run(["rm", "-r", run["run_dir"]])
    with watch(hpcflow) as daemon:
        daemon.wait_says("restore  (purged: its run directory is gone)")
        here = Counted(run_id, Path(run["run_dir"]), hpcflow.home)
        poll(lambda: here.causes[-1:] == ["completed"], 240, lambda: str(here.records[-3:]))
        ends = [wait_state(each, run_id, "completed") for each in (hpcflow, other)]
    for home, shown in zip((hpcflow, other), ends, strict=True):
        assert [attempt["cause"] for attempt in shown["attempts"]] == ["preempted", "completed"]
        assert shown["attempts"][1]["resume_from"] == f"checkpoints/{newest:09d}"
        assert_same(weights(shown), weights(undisturbed))
        assert home("ledger", "check").returncode == 0
        assert "restored by" in home("history", run_id).stdout
