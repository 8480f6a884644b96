"""A budget of a team on a real cluster: it stops, is settled, ends what runs, and is raised."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import Cluster, Software, User, poll
from tests.e2e.conftest import Hpcflow, newcomer
from tests.e2e.counted import assert_counted, start

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

#: A GPU of `spot` for six minutes, and the 35 seconds after them: 0.11 USD.
ASKED = ("--set", "resources.gpus_per_node=1", "--set", "resources.time_limit=6m")
SCOPE = "project:default"


def share(hpcflow: Hpcflow, team: Path) -> None:
    """The site file of this user names the folder of the team."""
    sites = hpcflow.home / "sites"
    hpcflow.user.run(["mkdir", "-p", "-m", "700", str(sites)])
    text = (Path(__file__).parents[2] / "site_configs" / "devcluster.yaml").read_text()
    hpcflow.user.run(
        ["sh", "-c", f"cat > {sites}/devcluster.yaml"], input=f"{text}\nbudgets_dir: {team}\n"
    )


def usd(hpcflow: Hpcflow) -> dict[str, Decimal]:
    shown: Any = hpcflow.json("budget", "show", SCOPE, "--site", "devcluster")
    said = shown["amounts"]["cost_usd"]
    names = ("spent", "committed", "running_so_far", "left")
    return {name: Decimal(said[name]) for name in names}


def test_a_hard_budget_of_a_team_stops_settles_saves_and_goes_on(
    hpcflow: Hpcflow, grace: User, software: Software, cluster: Cluster
) -> None:
    team = cluster.directory / f"team-{uuid.uuid4().hex[:8]}"
    team.mkdir()
    team.chmod(0o2777)
    other = newcomer(grace, software)
    for each in (hpcflow, other):
        share(each, team)
    site = ("--site", "devcluster")
    hpcflow("budget", "set", SCOPE, "--hard", "0.18", "--soft", "0.05", *site)

    run = start(hpcflow, *ASKED)
    program = other.write_config(
        "small.yaml",
        "name: small\ncommand: [sleep, '1']\nlaunch: {framework: none, launcher: none}\n"
        "resources: {partition: spot, mem: 200M}\n",
    )
    refused = other("run", program, *site, *ASKED, check=False)
    assert refused.returncode == 2
    assert "budget project:default has no room: of 0.18 USD, 0.00 USD are spent" in refused.stderr
    assert "0.11 USD committed to pending and running jobs" in refused.stderr
    assert "raise it: hpcflow budget set project:default --hard 0.22" in refused.stderr
    assert "--set resources.time_limit=3m" in refused.stderr
    assert other.json("ls")["runs"] == [], "nothing was made, and nothing sent"
    fits = other.json("run", program, *site, *ASKED, "--set", "resources.time_limit=3m", "--wait")
    assert fits["state"] == "completed"

    run.wait_training()
    so_far = usd(hpcflow)
    assert so_far["committed"] >= Decimal("0.1")
    assert 0 < so_far["running_so_far"] < Decimal("0.1")
    hpcflow("budget", "set", SCOPE, "--hard", "0.0005", "--soft", "none", *site,
            "--on-exceeded", "save_and_stop", "--why", "the grant is over")  # fmt: skip

    def has_left() -> bool:
        hpcflow("daemon", "--once")
        return bool(run.causes)

    poll(has_left, 300, lambda: f"{run.executions}, {run.records[-3:]}", every_s=1)
    assert run.causes == ["checkpointed"]
    reached = run.executions[0].reached
    assert max(run.checkpoints()) == reached, "it saved what it had"
    shown = hpcflow.json("show", run.run_id)
    assert (shown["next_action"], shown["next_rule"]) == ("wait", "over_budget")
    assert shown["next_why"].startswith("budget project:default of 0.00050 USD has no room")
    assert len(run.job_ids) == 1

    def is_settled() -> bool:
        other("ls")
        total = hpcflow.json("cost", "report")["total"]
        return not (total["unbilled"] or total["estimated"]) and usd(other)["committed"] == 0

    poll(is_settled, 300, lambda: hpcflow("budget", "show", SCOPE, *site).stdout, every_s=1)
    reports = [each.json("cost", "report")["total"]["cost_usd"] for each in (hpcflow, other)]
    assert usd(hpcflow)["spent"] == sum(map(Decimal, reports))
    assert other("run", program, *site, *ASKED, check=False).returncode == 2

    hpcflow("daemon", "--once")
    assert len(run.job_ids) == 1, "it waits"
    hpcflow("budget", "set", SCOPE, "--hard", "1", *site)
    hpcflow("daemon", "--once")
    assert len(run.job_ids) == 2, "it goes on by itself"
    run.wait_training(execution=2)
    assert run.executions[1].began_at == reached
    run.tell("finish")
    assert hpcflow("wait", run.run_id).returncode == 0
    poll(is_settled, 300, lambda: hpcflow("budget", "show", SCOPE, *site).stdout, every_s=1)
    reports = [each.json("cost", "report")["total"]["cost_usd"] for each in (hpcflow, other)]
    assert usd(hpcflow)["spent"] == sum(map(Decimal, reports))
    story = hpcflow("budget", "show", SCOPE, *site).stdout
    assert "hard 0.18 USD, soft 0.05 USD; when exceeded: finish" in story
    assert "when exceeded: save and stop (the grant is over)" in story
    assert_counted(hpcflow, cluster, [run])
