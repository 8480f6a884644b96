"""Bills of a real history, against a computation of their own straight from sacct."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.preempted import take_all_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

#: USD per GPU and hour, as in the site file of the development cluster.
PRICES = {"gpu": Decimal(3), "spot": Decimal(1)}
PROGRAM = """
name: {name}
command: [sh, -c, {shell!r}]
launch: {{framework: none, launcher: none}}
resources: {{partition: {partition}, gpus_per_node: {gpus}, time_limit: 5m, mem: 200M}}
retry: {{failures: 0, backoff: 1s}}
"""
LONG_AT_FIRST = 'if [ "$HPCFLOW_ATTEMPT" = 1 ]; then sleep 200; else sleep 3; fi'
SWEEP = """
name: billed
base: {base}
space: {{lr: {{choices: [0.1, 0.2, 0.3]}}}}
objective: {{metric: accuracy, direction: maximize}}
sampler: grid
submit: array
parallel: 3
"""


def send(hpcflow: Hpcflow, name: str, shell: str, *, partition: str = "gpu", gpus: int = 1) -> Any:
    text = PROGRAM.format(name=name, shell=shell, partition=partition, gpus=gpus)
    return hpcflow.json("run", hpcflow.write_config(f"{name}.yaml", text), "--site", "devcluster")


def by_sacct(user: User, since: str) -> dict[tuple[str, str], tuple[Decimal, Decimal]]:
    """Partition and user -> GPU hours and USD of all jobs of hpcflow's that were submitted since,
    with duplicates.

    `--starttime` alone also finds what another test left running when this one began.
    """
    out = user.run(
        ["sacct", "--user", user.name, "-X", "--parsable2", "-D", "--noheader", "--noconvert",
         "--starttime", since,
         "--format", "Partition,ElapsedRaw,AllocTRES,State,Submit,JobName%80"]
    ).stdout  # fmt: skip
    found: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}
    for line in out.splitlines():
        partition, elapsed, tres, state, submitted, name = line.split("|", 5)
        if not name.startswith("hpcflow") or state in ("RUNNING", "PENDING"):
            continue
        if submitted < since:
            continue
        counts = dict(part.split("=") for part in tres.split(",") if part)
        hours = Decimal(counts.get("gres/gpu", "0")) * Decimal(elapsed) / 3600
        before = found.get((partition, user.name), (Decimal(0), Decimal(0)))
        usd = hours * PRICES[partition]
        found[partition, user.name] = (before[0] + hours, before[1] + usd)
    return found


def test_the_report_is_what_sacct_says_to_the_cent(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    since = hpcflow.user.run(["date", "+%Y-%m-%dT%H:%M:%S"]).stdout.strip()
    completed = send(hpcflow, "completed", "sleep 3", gpus=4)
    failed = send(hpcflow, "failed", "sleep 2; exit 3", gpus=2)
    cancelled = send(hpcflow, "cancelled", "sleep 100")
    preempted = send(hpcflow, "preempted", LONG_AT_FIRST, partition="spot", gpus=2)
    requeued = send(hpcflow, "requeued", LONG_AT_FIRST)
    unpaid = send(hpcflow, "without-gpus", "sleep 1", gpus=0)
    runs = [completed, failed, cancelled, preempted, requeued, unpaid]

    def shown(run: Any) -> Any:
        return hpcflow.json("show", run["run_id"])

    def is_running(run: Any) -> bool:
        return bool(shown(run)["state"] == "running")

    for run in (cancelled, preempted, requeued):
        poll(partial(is_running, run), 300, f"{run['run_id']} never ran")
    cluster.run("scontrol", "update", f"jobid={requeued['job_id']}", "requeue=1")
    cluster.run("scontrol", "requeue", requeued["job_id"])
    hpcflow("cancel", cancelled["run_id"])
    take_all_nodes(grace)
    base = hpcflow.write_config(
        "trial.yaml",
        PROGRAM.format(name="trial", shell="sleep 2", partition="gpu", gpus=1),
    )
    sweep = hpcflow.write_config("sweep.yaml", SWEEP.format(base=base))
    hpcflow.json("sweep", "start", sweep, "--site", "devcluster")

    def is_over() -> bool:
        hpcflow("daemon", "--once", check=False)
        states = {each["run_id"]: each["state"] for each in hpcflow.json("ls")}
        total = hpcflow.json("cost", "report")["total"]
        is_billed = not total["unbilled"] and not total["estimated"]
        return is_billed and set(states.values()) <= {"completed", "failed", "cancelled"}

    poll(is_over, 300, lambda: hpcflow("cost", "report", "--by", "run").stdout, every_s=2)
    assert {shown(run)["state"] for run in runs} == {"completed", "failed", "cancelled"}
    assert len(shown(requeued)["attempts"]) == 2, "two lives of one job"
    assert len(shown(preempted)["attempts"]) == 2
    assert len([each for each in hpcflow.json("ls") if each["name"].startswith("billed-t")]) == 3

    told = by_sacct(hpcflow.user, since)
    lines = hpcflow.json("cost", "report", "--by", "partition", "--by", "user")["lines"]
    billed = {
        (line["partition"], line["user"]): (line["gpu_hours"], Decimal(line["cost_usd"]))
        for line in lines
    }
    assert set(billed) == set(told) == {("gpu", "hpcf-ada"), ("spot", "hpcf-ada")}
    for key, (hours, usd) in told.items():
        assert billed[key][0] == pytest.approx(float(hours), abs=1e-5)
        assert abs(billed[key][1] - usd) < Decimal("0.000001"), key
        assert billed[key][1] > 0
    (spot,) = [line for line in lines if line["partition"] == "spot"]
    saved, cost = Decimal(spot["saved_usd"]), Decimal(spot["cost_usd"])
    assert abs(saved - 2 * cost) < Decimal("0.000001"), "gpu has three times the price"
    # Other tests' jobs are ada's, too, and nothing that this home knows.
    audit = hpcflow.json("cost", "audit", check=False)
    assert (audit["differences"], audit["problems"]) == ([], [])
    own = {each["run_id"] for each in hpcflow.json("ls")}
    assert not [each for each in audit["unknown"] if each["run_id"] in own]
    assert audit["checked"] == sum(line["attempts"] for line in lines)
    assert hpcflow("ledger", "check").returncode == 0


def test_a_heterogeneous_job_and_one_that_no_run_knows(hpcflow: Hpcflow) -> None:
    """Both are what sacct says, each component once."""
    user = hpcflow.user
    lost = ["sbatch", "--parsable", "--wait", "--partition=gpu", "--gpus-per-node=2", "--mem=100M"]
    name = "--job-name=hpcflow:lost-20260301-abcdefgh:1"
    lost_id = user.run([*lost, "--time=2", name, "--wrap=sleep 2"]).stdout.strip()
    text = PROGRAM.format(name="by-hand", shell="sleep 4", partition="gpu", gpus=1)
    config = hpcflow.write_config("by-hand.yaml", text)
    one = ["--partition=gpu", "--gpus-per-node=1", "--mem=200M", "--time=5"]
    two = ["--partition=spot", "--gpus-per-node=2", "--mem=100M", "--time=5"]
    both = ["--job-name=hpcflow-by-hand"]
    wrapper = hpcflow.software.sbatch / "train.sbatch"
    sent = user.run(
        [
            *("sbatch", "--parsable", *one, *both, ":", *two, *both),
            *(str(wrapper), str(config), "--site", "devcluster"),
        ],
        cwd=hpcflow.home.parent,
        env=hpcflow.env,
    )
    job_id = sent.stdout.strip()

    def is_billed() -> bool:
        seen = [run for run in hpcflow.json("ls") if run["job_id"] == job_id]
        total = hpcflow.json("cost", "report")["total"]
        is_over = seen and seen[0]["state"] == "completed"
        return bool(is_over and not total["unbilled"] and not total["estimated"])

    poll(is_billed, 300, lambda: hpcflow("show", "by-hand").stdout, every_s=2)
    rows = user.run(
        ["sacct", "-X", "--parsable2", "-D", "--noheader", "--noconvert", "-j", job_id,
         "--format", "JobID,ElapsedRaw,AllocTRES,Partition"]
    ).stdout.split()  # fmt: skip
    assert [row.split("|")[0] for row in rows] == [f"{job_id}+0", f"{job_id}+1"]
    hours = usd = Decimal(0)
    for row in rows:
        _, elapsed, tres, partition = row.split("|")
        counts = dict(part.split("=") for part in tres.split(","))
        more = Decimal(counts["gres/gpu"]) * Decimal(elapsed) / 3600
        hours, usd = hours + more, usd + more * PRICES[partition]
    total = hpcflow.json("cost", "report")["total"]
    assert total["gpu_hours"] == pytest.approx(float(hours), abs=1e-5)
    assert abs(Decimal(total["cost_usd"]) - usd) < Decimal("0.000001")
    audit = hpcflow.json("cost", "audit", "--since", "1h", check=False)
    assert (audit["checked"], audit["differences"], audit["problems"]) == (1, [], [])
    (found,) = [each for each in audit["unknown"] if each["job_id"] == lost_id]
    assert (found["run_id"], found["gpu_hours"] > 0) == ("lost-20260301-abcdefgh", True)
    assert not [each for each in audit["unknown"] if each["job_id"].startswith(job_id)]
    said = hpcflow("cost", "audit", "--since", "1h", check=False).stdout
    assert f"sacct -X -D -j {lost_id}" in said


def test_each_part_of_a_resized_job_is_charged_once(hpcflow: Hpcflow) -> None:
    """All records of such a job have the start of the whole; only Submit is that of a part."""
    user = hpcflow.user
    text = PROGRAM.format(name="resized", shell="sleep 14", partition="gpu", gpus=2)
    text = text.replace("gpus_per_node: 2,", "gpus_per_node: 2, nodes: 2,")
    text = text.replace("launcher: none", "launcher: srun")  # whose step dies with the lost node
    run = hpcflow.json("run", hpcflow.write_config("resized.yaml", text), "--site", "devcluster")

    def shown() -> Any:
        return hpcflow.json("show", run["run_id"])

    poll(lambda: bool(shown()["state"] == "running"), 120, "it never ran")
    hpcflow.user.run(["sleep", "4"])
    user.run(["scontrol", "update", f"jobid={run['job_id']}", "NumNodes=1"])

    def is_billed() -> bool:
        hpcflow("ls")
        total = hpcflow.json("cost", "report")["total"]
        is_over = shown()["state"] in ("completed", "failed")
        return bool(is_over and not total["unbilled"] + total["estimated"])

    poll(is_billed, 300, lambda: hpcflow("show", run["run_id"]).stdout, every_s=2)
    rows = user.run(
        ["sacct", "-X", "--parsable2", "-D", "--noheader", "--noconvert", "-j", run["job_id"],
         "--format", "Submit,Start,End,AllocTRES"]
    ).stdout.split()  # fmt: skip
    assert len(rows) == 2, "before and after"
    hours = Decimal(0)
    for row in rows:
        submit, start, end, tres = row.split("|")
        since = max(datetime.fromisoformat(submit), datetime.fromisoformat(start))
        took_s = Decimal((datetime.fromisoformat(end) - since).total_seconds())
        counts = dict(part.split("=") for part in tres.split(","))
        hours += Decimal(counts["gres/gpu"]) * took_s / 3600
    total = hpcflow.json("cost", "report")["total"]
    assert (total["attempts"], total["gpu_hours"]) == (1, pytest.approx(float(hours), abs=1e-5))
    assert abs(Decimal(total["cost_usd"]) - hours * PRICES["gpu"]) < Decimal("0.000001")
    audit = hpcflow.json("cost", "audit", check=False)
    assert (audit["checked"], audit["differences"], audit["problems"]) == (1, [], [])
