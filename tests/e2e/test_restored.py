"""Scratch is purged, or the whole cluster gone: what was mirrored is trained to its end."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run
from hpcflow.testing.cluster import S3, User, poll
from tests.e2e.conftest import TWO_NODES, Hpcflow, newcomer
from tests.e2e.counted import watch
from tests.e2e.preempted import events, take_all_nodes
from tests.e2e.test_main_job import assert_same, weights

pytestmark = [pytest.mark.cluster, pytest.mark.s3, pytest.mark.timeout(600)]


@pytest.fixture
def store(s3_server: S3) -> tuple[dict[str, str], str]:
    """What reaches the S3 server, and a bucket of it."""
    return s3_server.env(), s3_server.create_bucket(f"e2e-{secrets.token_hex(6)}")


def _preempted(hpcflow: Hpcflow, grace: User, url: str) -> dict[str, Any]:
    """The digits training on two nodes, preempted after its first checkpoints."""
    run: dict[str, Any] = hpcflow.json(
        "run",
        hpcflow.digits,
        *TWO_NODES,
        *("--set", "resources.partition=spot", "--set", "resources.gpus_per_node=1"),
        *("--set", f"mirror={url}"),
    )
    run_dir = Path(run["run_dir"])

    def has_saved() -> bool:
        return any(each["event"] == "checkpoint" for each in events(run_dir, 1))

    poll(has_saved, 120, "it never saved")
    take_all_nodes(grace)
    poll(lambda: _state(hpcflow, run) == "waiting", 120, "it was never preempted")
    return run


def _state(hpcflow: Hpcflow, run: dict[str, Any]) -> str:
    return str(hpcflow.json("show", run["run_id"])["state"])


def _delete(hpcflow: Hpcflow, folder: str) -> None:
    hpcflow.user.run(["rm", "-r", folder])


def test_the_daemon_restores_a_run_whose_directory_was_deleted_and_it_ends_the_same(
    hpcflow: Hpcflow,
    grace: User,
    store: tuple[dict[str, str], str],
    undisturbed: dict[str, Any],
) -> None:
    environ, bucket = store
    hpcflow = replace(hpcflow, env={**hpcflow.env, **environ})
    run = _preempted(hpcflow, grace, f"s3://{bucket}/runs")
    hpcflow("mirror", "--once")
    newest = max(int(path.name) for path in RunDir(Path(run["run_dir"])).checkpoints.glob("[0-9]*"))
    _delete(hpcflow, run["run_dir"])
    with watch(hpcflow) as daemon:
        daemon.wait_says("restore  (purged: its run directory is gone)")
        poll(lambda: _state(hpcflow, run) == "completed", 240, lambda: daemon.said)
    shown = hpcflow.json("show", run["run_id"])
    assert [attempt["cause"] for attempt in shown["attempts"]] == ["preempted", "completed"]
    assert shown["attempts"][1]["resume_from"] == f"checkpoints/{newest:09d}"
    assert hpcflow("ledger", "check").returncode == 0
    assert "restored by" in hpcflow("history", run["run_id"]).stdout
    assert_same(weights(shown), weights(undisturbed))


def test_an_empty_home_with_another_scratch_restores_from_the_bucket_alone_and_trains_on(
    hpcflow: Hpcflow,
    grace: User,
    store: tuple[dict[str, str], str],
    undisturbed: dict[str, Any],
) -> None:
    environ, bucket = store
    hpcflow = replace(hpcflow, env={**hpcflow.env, **environ})
    url = f"s3://{bucket}/runs"
    run = _preempted(hpcflow, grace, url)
    hpcflow("mirror", "--once")
    other = newcomer(hpcflow.user, hpcflow.software)
    scratch = other.home.parent / "scratch"
    hpcflow.user.run(["mkdir", "-m", "700", str(scratch)])
    other = replace(other, env={**other.env, **environ, "SCRATCH": str(scratch)})
    there = f"{url}/{run['run_id']}"
    refused = other("restore", "--from", there, "--site", "devcluster", check=False)
    assert refused.returncode == 2
    assert "may be under way on" in refused.stderr
    hpcflow("hold", run["run_id"])
    hpcflow("mirror", "--once")
    _delete(hpcflow, run["run_dir"])
    restored = other.json("restore", "--from", there, "--site", "devcluster")
    assert restored["is_from_elsewhere"]
    run_dir = RunDir(Path(restored["run_dir"]))
    assert run_dir.path.is_relative_to(scratch)
    assert read_run(run_dir).mirror is not None
    shown = other.json("show", run["run_id"])
    assert [attempt["cause"] for attempt in shown["attempts"]] == ["preempted"]
    assert shown["next_action"] == "held"
    other("resume", run["run_id"], "--wait")
    shown = other.json("show", run["run_id"])
    assert [attempt["cause"] for attempt in shown["attempts"]] == ["preempted", "completed"]
    assert_same(weights(shown), weights(undisturbed))
    assert other("ledger", "check").returncode == 0
