"""`hpcflow efficiency` and `hpcflow estimate` as a person types them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.ledger.lines import event

SITE = """\
name: mine
scheduler: local
has_accounting: false
scratch: {path: $HPCFLOW_HOME/scratch}
gpu_types:
  a100: {mem: 80G, vendor: fake}
  l4: {mem: 24G, vendor: fake}
  t4: {mem: 16G, vendor: fake}  # of which no partition has any
partitions:
  here: {cpus_per_node: 16, gpus_per_node: 4, gpu_type: a100, mem_per_node: 500G}
  small: {cpus_per_node: 16, gpus_per_node: 4, gpu_type: l4, mem_per_node: 500G}
"""
#: Holds 300 MiB for some seconds, a core for the first three of them, and then ends well.
BURNS = """\
import time
held, end = bytearray(300 << 20), time.monotonic() + 13
while time.monotonic() < end and time.process_time() < 3:
    pass
time.sleep(max(0, end - time.monotonic()))
"""
RUN = """
name: {name}
project: tests
command: {command}
launch: {{framework: none, launcher: none}}
resources: {{gpus_per_node: {gpus}, cpus_per_task: 8, mem: 200G, time_limit: 1d}}
"""


@pytest.fixture
def site(desk: Desk) -> str:
    (desk.folder / "mine.yaml").write_text(SITE)
    return str(desk.folder / "mine.yaml")


def send(desk: Desk, site: str, name: str, command: list[str], gpus: int, *more: str) -> Any:
    config = desk.folder / f"{name}.yaml"
    config.write_text(RUN.format(name=name, command=json.dumps(command), gpus=gpus))
    return desk.json("run", str(config), "--site", site, *more)


def seen(said: Any, minutes: float, **facts: Any) -> None:
    """What a job of hours would have told."""
    events = Path(said["run_dir"]) / "attempts" / "0001" / "events.jsonl"
    poll(events.exists, 120, "it never began")
    asked = {"cpus": 8, "gpus": 4, "mem_mb": 204_800, "time_limit_min": 1440}
    with events.open("ab") as file:
        file.write(event("usage", minutes, nodes=1, asked=asked, **facts))


def advised(found: Any) -> dict[str, str]:
    return {each["key"]: each["value"] for each in found["advice"]}


def test_a_real_run_that_asked_for_too_much_is_told_what_it_needs(desk: Desk, site: str) -> None:
    said = send(desk, site, "burns", [sys.executable, "-c", BURNS], 0, "--wait")
    found = desk.json("efficiency", "burns")
    (attempt,) = found["attempts"]
    assert attempt["measured"]["mem_peak_mb"] == pytest.approx(312, abs=25)
    assert 0 < attempt["measured"]["cores_p95"] < 1.5
    assert (attempt["mem_mb"], attempt["cpus"], attempt["time_limit_min"]) == (204_800, 8, 1440)
    cpus = advised(found)["resources.cpus_per_task"]
    assert cpus in ("1", "2"), "of a core that it may have had to share"
    others = {"resources.mem": "512M", "resources.time_limit": "5m"}
    assert advised(found) == {**others, "resources.cpus_per_task": cpus}
    shown = desk.say("efficiency", said["run_id"])
    assert "→ ask for 512M, not 200G: the most on a node was 3" in shown
    assert "--set resources.time_limit=5m" in shown
    assert re.search(r"[01]\.[0-9]/8 ", shown)
    desk.say("ledger", "rebuild")
    assert advised(desk.json("efficiency", "burns")) == advised(found)


def test_gpus_that_are_held_and_idle_are_told_while_the_job_runs(desk: Desk, site: str) -> None:
    said = send(desk, site, "holds", ["sleep", "300"], 4)
    poll(lambda: desk.json("show", "holds")["state"] == "running", 120, "it never ran")
    facts = {
        "seconds": 1800.0,
        "samples": 60,
        "gpus": 4,
        "gpu_busy_mean": 20.0,
        "gpu_mem_peak_mb": 8000,
        "gpu_mem_total_mb": 81920,
    }
    seen(said, 31, **facts, gpus_idle=2, gpus_idle_names=["n1:2", "n1:3"])
    held = "warning: 2 GPUs are allocated, but idle for ten minutes or more: n1:2, n1:3\n"
    assert desk.error("efficiency", "holds", code=0) == held
    assert desk.error("show", "holds", code=0).startswith(held[:-1] + " → see: hpcflow effi")
    shown = desk.say("efficiency", "holds")
    assert "4/4" in shown
    assert "20%" in shown
    assert "7.8 of 80 GiB were used: a l4 with 24 GiB is enough, in partition small" in shown
    assert "--set resources.partition=small" in shown
    assert "time limit: the run has not completed" in shown
    seen(said, 35, **{**facts, "gpus": 1})
    assert "?/4" in desk.say("efficiency", "holds"), "of three nobody knows anything"
    seen(said, 40, **facts, gpus_unused=1, gpus_unused_names=["n1:3"])
    assert "GPU n1:3 was never used; ask for 3 on a node" in desk.say("efficiency", "holds")
    desk.say("cancel", "holds")
    assert "held" not in desk.error("show", "holds", code=0)


def test_sums_across_runs_are_by_user_project_or_partition(desk: Desk, site: str) -> None:
    said = send(desk, site, "sums", ["sleep", "1"], 4, "--wait")
    assert desk.json("efficiency", "--by", "project")["lines"][0]["measured"] == 0
    seen(said, 5, seconds=1.0, gpus=4, gpu_busy_mean=25.0, cores_mean=2.0, mem_peak_mb=51_200)
    for _ in range(2):
        desk.say("ledger", "rebuild")  # a run at rest is not read again
    found = desk.json("efficiency", "--by", "project")
    (line,) = found["lines"]
    assert (line["project"], line["runs"], line["measured"]) == ("tests", 1, 1)
    assert line["gpu_hours_used"] == pytest.approx(line["gpu_hours_had"] / 4, abs=1e-3)
    shown = desk.say("efficiency", "--by", "partition", "--project", "tests")
    assert "here" in shown
    assert shown.splitlines()[-2].split()[-4:-1] == ["25%", "25%", "25%"]
    assert desk.json("efficiency", "--by", "account")["lines"][0]["runs"] == 1
    assert desk.say("efficiency", "--by", "user", "--since", "1h", "--user", "nobody").startswith(
        "no attempts ran in this time"
    )
    assert desk.json("efficiency", "--by", "user", "--since", "1h")["total"]["runs"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "give a RUN, or --by user, project, partition or account"),
        (("digits", "--by", "user"), "give a RUN, or --by"),
        (("digits", "--since", "1d"), "--since, --project and --user need --by"),
        (("--by", "colour"), "'colour' is not one of"),
        (("nothing-like-it",), "nothing-like-it"),
    ],
)
def test_what_makes_no_sense_is_refused(desk: Desk, args: tuple[str, ...], said: str) -> None:
    assert said in desk.error("efficiency", *args)


def test_a_run_that_has_not_begun_has_used_nothing(desk: Desk, site: str) -> None:
    send(desk, site, "later", ["true"], 0, "--wait")
    found = desk.json("efficiency", "later")
    assert {each["what"]: each["why"] for each in found["nothing"]}["memory"] == (
        "it was not measured"
    )


def test_an_estimate_names_the_gpus_that_would_do(desk: Desk, site: str) -> None:
    args = ("estimate", "--parameters", "7.5B", "--site", site, "--gpus", "64")
    found = desk.json(*args, "--sharding", "zero2")
    assert found["total_bytes"] == pytest.approx(16.6e9, rel=0.01)
    assert found["activations_bytes"] is None
    assert {name: each["fits"] for name, each in found["gpu_types"].items()} == {
        "a100": True,
        "l4": True,
        "t4": False,
    }
    said = desk.say(*args, "--batch", "1", "--sequence", "2048")
    assert "l4 with 24.0 GiB is too small" in said
    assert "assumed: 34 layers of width 4309 with 34 heads" in said
    said = desk.say(*args, "--sharding", "zero2")
    assert "without activations: give --batch and --sequence" in said
    assert "l4 with 24.0 GiB holds these" in said, "which is not all that it must hold"
    assert "is large enough" not in said
    tiny = ("--parameters", "1", "--layers", "100", "--batch", "1", "--sequence", "1")
    assert "assumed: 100 layers of width 1 with 1 head" in desk.say("estimate", *tiny)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--parameters", "many"), "expected a number of parameters, like 7e9, 350M or 7B"),
        (("--parameters", "0"), "expected a number of parameters"),
        (("--parameters", "7e99"), "expected a number of parameters"),
        (("--parameters", "7B", "--batch", "4"), "--batch and --sequence go together"),
        (("--parameters", "7B", "--gpus", "3", "--tensor-parallel", "2"), "not a multiple"),
        (("--parameters", "7B", "--gpus", "0"), "0 is not in the range"),
        (("--parameters", "7B", "--site", "nowhere"), "nowhere"),
        ((), "Missing option '--parameters'"),
    ],
)
def test_an_estimate_of_nonsense_is_refused(desk: Desk, args: tuple[str, ...], said: str) -> None:
    assert said in desk.error("estimate", *args)
