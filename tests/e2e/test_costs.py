"""Bills of a real history, against a computation of their own straight from sacct."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.preempted import take_all_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

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
    """Partition and user -> GPU hours and USD of all jobs of hpcflow's since, with duplicates."""
    out = user.run(
        ["sacct", "--user", user.name, "-X", "--parsable2", "-D", "--noheader", "--noconvert",
         "--starttime", since,
         "--format", "Partition,ElapsedRaw,AllocTRES,State,JobName%80"]
    ).stdout  # fmt: skip
    found: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}
    for line in out.splitlines():
        partition, elapsed, tres, state, name = line.split("|", 4)
        if not name.startswith("hpcflow") or state in ("RUNNING", "PENDING"):
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
        poll(partial(is_running, run), 60, f"{run['run_id']} never ran")
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
    audit = hpcflow.json("cost", "audit")
    assert (audit["differences"], audit["problems"]) == ([], [])
    assert audit["checked"] == sum(line["attempts"] for line in lines)
    assert hpcflow("ledger", "check").returncode == 0
