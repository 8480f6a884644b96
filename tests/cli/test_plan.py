"""`hpcflow plan` as a person types it, on a machine without Slurm."""

from __future__ import annotations

import os

import pytest

from tests.cli.desk import Desk
from tests.cli.test_live_view import at_a_terminal

SITE = """\
name: mine
scheduler: local
has_accounting: false
scratch: {path: $HPCFLOW_HOME/scratch}
partitions:
  dear: {cpus_per_node: 64, time_limit_max: 1h, price: {node_hour_usd: "2"}}
  cheap: {cpus_per_node: 64, time_limit_max: 1h, price: {node_hour_usd: "1"}}
  tiny: {cpus_per_node: 64, time_limit_max: 1m}
"""


@pytest.fixture
def priced(desk: Desk) -> Desk:
    """Before a site with two prices, and a place that is too small."""
    (desk.folder / "mine.yaml").write_text(SITE)
    return desk


def words(desk: Desk, *more: str) -> tuple[str, ...]:
    config = str(desk.config("job", "true"))
    limit = ("--set", "resources.time_limit=30m")
    return config, "--site", str(desk.folder / "mine.yaml"), *limit, *more


def test_the_first_place_is_where_run_goes(priced: Desk) -> None:
    plan = priced.json("plan", *words(priced))

    assert [each["partition"] for each in plan["candidates"]] == ["cheap", "dear"]
    assert [each["cost_usd"] for each in plan["candidates"]] == ["0.50", "1.00"]
    assert plan["refused"][0]["partition"] == "tiny"
    assert "at most 1m 00s" in plan["refused"][0]["reason"]
    assert priced.json("run", *words(priced), "--dry-run")["partition"] == "cheap"


def test_people_are_told_why(priced: Desk) -> None:
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    shown = at_a_terminal("plan", *words(priced), env=env, cwd=priced.folder)

    assert "cheapest" in shown
    assert "not tiny: " in shown
    assert "\x1b[1m" in shown


def test_another_partition_is_told_where_one_was_named(priced: Desk) -> None:
    said = priced.say("plan", *words(priced, "--set", "resources.partition=dear"))

    assert "--set resources.partition=cheap" in said
    assert "costs 0.50 USD" in said


def test_what_fits_nowhere_says_so_for_each_place(priced: Desk) -> None:
    said = priced.say("plan", *words(priced, "--set", "resources.time_limit=2h"), code=2)

    for name in ("dear", "cheap", "tiny"):
        assert f"not {name}: " in said


def test_a_wrong_config_is_told_as_everywhere(priced: Desk) -> None:
    said = priced.error("plan", *words(priced, "--set", "resources.partition=nowhere"))

    assert "site mine has no partition 'nowhere'" in said
