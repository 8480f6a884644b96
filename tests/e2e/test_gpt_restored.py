"""The GPT example is preempted, goes on with four ranks where it had two, loses its scratch, and is
restored: by the daemon, and by an empty home. All of them end on one loss curve."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.testing.cluster import S3, User, poll
from tests.e2e.conftest import TWO_NODES, Hpcflow, events
from tests.e2e.counted import take_all_nodes, watch
from tests.e2e.test_restored import wait_state, with_scratch_of_its_own

pytestmark = [
    *(pytest.mark.cluster, pytest.mark.s3, pytest.mark.timeout(1200)),
    pytest.mark.soak,  # test_restored.py does the same with a smaller program
]

#: Few train steps, for four ranks on two cores spend most of each waiting for one another; and long
#: ones, so that it is preempted twice before its end.
SMALL = (
    *("--set", "params.n_layer=2", "--set", "params.train_steps=60"),
    *("--set", "checkpoint.every_train_steps=5", "--set", "launch.launcher=torchrun"),
)
#: Four ranks add up in another order than two.
ALIKE = 1e-3


def _losses(run_dir: str) -> dict[int, float]:
    """Train step -> loss of the whole batch; of what was done twice, the last time."""
    found: dict[int, float] = {}
    for folder in sorted(Path(run_dir, "attempts").iterdir()):
        for each in events(Path(run_dir), int(folder.name)):
            if each["event"] == "progress" and "loss" in each["metrics"]:
                found[each["train_step"]] = each["metrics"]["loss"]
    return found


def _wait_saved(run_dir: Path, attempt: int) -> None:
    def has_saved() -> bool:
        return any(each["event"] == "checkpoint" for each in events(run_dir, attempt))

    poll(has_saved, 240, lambda: f"attempt {attempt} never saved: {events(run_dir, attempt)[-3:]}")


def _finished(run_dir: str) -> dict[str, float]:
    """The metrics of the end."""
    for folder in sorted(Path(run_dir, "attempts").iterdir(), reverse=True):
        for each in events(Path(run_dir), int(folder.name)):
            if each["event"] == "finished":
                metrics: dict[str, float] = each["metrics"]
                return metrics
    raise AssertionError(f"{run_dir}: it never finished")


def _assert_alike(run_dir: str, expected_dir: str) -> None:
    """One loss curve, where both have reported it, and one end."""
    losses, expected = _losses(run_dir), _losses(expected_dir)
    both = losses.keys() & expected.keys()
    assert len(both) >= 3, (sorted(losses), sorted(expected))
    for train_step in both:
        assert losses[train_step] == pytest.approx(expected[train_step], rel=ALIKE), train_step
    assert _finished(run_dir) == pytest.approx(_finished(expected_dir), rel=ALIKE)


def test_the_gpt_example_goes_on_wherever_its_files_are(
    hpcflow: Hpcflow, grace: User, s3_server: S3
) -> None:
    environ, bucket = s3_server.env(), s3_server.create_bucket(f"gpt-{secrets.token_hex(6)}")
    hpcflow = replace(hpcflow, env={**hpcflow.env, **environ})
    gpt = hpcflow.software.examples / "gpt" / "config.yaml"
    whole = hpcflow.json("run", gpt, *TWO_NODES, *SMALL, "--wait")

    spot = ("--set", "resources.partition=spot", "--set", "resources.gpus_per_node=2")
    two_ranks = ("--set", "resources.tasks_per_node=1")
    url = f"s3://{bucket}/runs"
    run = hpcflow.json("run", gpt, *TWO_NODES, *SMALL, *spot, *two_ranks, "--set", f"mirror={url}")
    run_id, run_dir = run["run_id"], Path(run["run_dir"])
    _wait_saved(run_dir, 1)
    take_all_nodes(grace)
    wait_state(hpcflow, run_id, "waiting")

    hpcflow("resume", run_id, "--set", "resources.tasks_per_node=2")
    _wait_saved(run_dir, 2)
    begins = [events(run_dir, number) for number in (1, 2)]
    ranks = [
        next(e["world_size"] for e in each if e["event"] == "train_started") for each in begins
    ]
    assert ranks == [2, 4]
    take_all_nodes(grace)
    wait_state(hpcflow, run_id, "waiting")
    hpcflow("mirror", "--once")
    hpcflow.user.run(["rm", "-r", str(run_dir)])

    other = with_scratch_of_its_own(hpcflow, environ)
    there = ("--from", f"{url}/{run_id}", "--site", "devcluster", "--even-if-running")
    restored = other.json("restore", *there)
    assert Path(restored["run_dir"]).is_relative_to(other.env["SCRATCH"])
    assert [each["cause"] for each in other.json("show", run_id)["attempts"]] == ["preempted"] * 2
    other("resume", run_id)
    with watch(hpcflow) as daemon:
        daemon.wait_says("restore  (purged: its run directory is gone)")
        ends = [wait_state(each, run_id, "completed") for each in (hpcflow, other)]
    for shown, folder in zip(ends, (str(run_dir), restored["run_dir"]), strict=True):
        causes = [each["cause"] for each in shown["attempts"]]
        assert causes == ["preempted", "preempted", "completed"]
        assert shown["attempts"][2]["resume_from"] is not None
        _assert_alike(folder, whole["run_dir"])
    assert _finished(str(run_dir)) == _finished(restored["run_dir"]), "they went on from one place"
    assert hpcflow("ledger", "check").returncode == 0
