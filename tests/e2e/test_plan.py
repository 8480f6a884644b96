"""Where a run goes while the cluster is nearly full, held against what Slurm itself says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

CONFIG = """
name: wide
command: [sleep, "600"]
launch: {framework: none, launcher: srun}
resources: {nodes: 2, gpus_per_node: 4, time_limit: 30m, mem: 200M, account: auto}
"""


@pytest.fixture
def two_accounts(cluster: Cluster, ada: User, grace: User) -> Iterator[None]:
    """ada may charge biology, too; grace, who charges it, has three of the four nodes for long."""
    # sacctmgr fails if a killed test left the association behind.
    cluster.run("sacctmgr", "-i", "add", "user", ada.name, "account=biology", check=False)
    for user in (ada, grace):
        cluster.run("scancel", "--user", user.name)
    holds = ["sbatch", "--parsable", "-pgpu", "-N3", "--exclusive", "-t60", "-o", "/dev/null"]
    job = grace.run([*holds, "--wrap=sleep 3600"]).stdout.strip()
    idle = ["sinfo", "--noheader", "--partition=gpu", "--states=idle", "--format=%D"]

    def stands() -> bool:
        """Until then jobs of earlier tests may still be ending, so that other nodes are free."""
        queue = cluster.run("squeue", "--noheader", "--format=%i %T").split()
        return queue == [job, "RUNNING"] and cluster.run(*idle).split() == ["1"]

    try:
        poll(stands, 300, lambda: cluster.run("squeue") + cluster.run("sinfo"))
        yield
    finally:
        grace.run(["scancel", job])
        ada.run(["scancel", "--user", ada.name])
        cluster.run("sacctmgr", "-i", "delete", "user", ada.name, "account=biology")


def shares(user: User) -> dict[str, float]:
    """Account -> the user's fair-share factor, as sshare tells it."""
    out = user.run(["sshare", "-nP", "-U", "--format=Account,FairShare"]).stdout
    pairs = (line.split("|") for line in out.splitlines())
    return {account.strip(): float(factor) for account, factor in pairs}


def test_the_plan_is_what_slurm_says_and_run_goes_there(
    hpcflow: Hpcflow,
    market: Path,
    two_accounts: None,  # noqa: ARG001
) -> None:
    config = hpcflow.write_config("wide.yaml", CONFIG)
    told: list[dict[str, float]] = [{}]

    def planned_and_sent() -> Any:
        """Both while the shares stood still, which Slurm counts every minute; while Slurm answered
        each question in time; and without a job that was cancelled before, which would count."""
        if hpcflow.user.run(["squeue", "--me", "--noheader"]).stdout:
            return None
        told.append(shares(hpcflow.user))
        if abs(told[-1]["biology"] - told[-1]["physics"]) <= 0.05:
            return None
        plan = hpcflow.json("plan", config, "--site", market)
        sent = hpcflow.json("run", config, "--site", market)
        if shares(hpcflow.user) == told[-1] and not plan["unknown"]:
            return plan, sent
        hpcflow("cancel", sent["run_id"])
        return None

    plan, sent = poll(
        planned_and_sent, 240, lambda: f"no plan at rest; shares: {told[-1]}", every_s=2
    )
    factors = told[-1]
    places = [(each["partition"], each["account"]) for each in plan["candidates"]]
    assert sorted(places) == [
        (name, account) for name in ("gpu", "spot") for account in ("biology", "physics")
    ]
    assert factors[places[0][1]] == max(factors.values()), "the account with the better standing"
    for each in plan["candidates"]:
        assert each["fair_share"] == pytest.approx(factors[each["account"]], abs=0.01)
        assert each["waits_s"] > 50 * 60, "two nodes are free in an hour"
    assert {each["partition"]: each["reason"] for each in plan["refused"]} == {
        "short": "30m 00s, and partition short allows at most 2m 00s"
    }
    fewer = {each["set"]: each for each in plan["alternatives"]}["resources.nodes=1"]
    assert fewer["sooner_s"] > 50 * 60
    assert fewer["waits_s"] < 60
    assert fewer["slower"] == 2

    smaller = hpcflow.json("run", config, "--site", market, "--set", fewer["set"])
    poll(
        lambda: hpcflow.json("show", smaller["run_id"])["state"] == "running",
        60,
        "it starts now, as was said",
    )

    run = hpcflow.json("show", sent["run_id"])
    job = sent["job_id"]
    ask = ["squeue", "--noheader", f"--jobs={job}", "--start", "--format=%P|%a|%S"]

    def promised() -> list[str]:
        """Empty where Slurm tells no start, as it may for a moment after it has told one."""
        words = hpcflow.user.run(ask).stdout.strip().split("|")
        return [] if words[-1] in ("", "N/A") else words

    partition, account, start = poll(promised, 300, "Slurm told no start", every_s=1)
    assert (partition, account) == places[0]
    assert run["partition"] == partition
    predicted = datetime.fromisoformat(plan["candidates"][0]["starts_at"])
    seconds = hpcflow.user.run(["date", "+%s", "--date", start]).stdout
    assert abs(predicted.timestamp() - int(seconds)) < 120
