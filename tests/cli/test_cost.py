"""`hpcflow cost` as a person types it."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.cli.test_live_view import at_a_terminal

SITE = """\
name: mine
scheduler: local
has_accounting: false
scratch: {path: $HPCFLOW_HOME/scratch}
partitions:
  here:
    cpus_per_node: 64
    price: {node_hour_usd: "3600", node_hour_su: "1"}
  free:
    cpus_per_node: 64
"""


@pytest.fixture
def billed(desk: Desk) -> Desk:
    """With a run that took a second of a node of a dollar a second, and one without a price."""
    (desk.folder / "mine.yaml").write_text(SITE)
    for name, partition in (("paid", "here"), ("unpaid", "free")):
        config = desk.config(name, "sleep 1")
        desk.say(
            *("run", config, "--wait", "--site", str(desk.folder / "mine.yaml")),
            *("--set", f"resources.partition={partition}", "--set", f"project={name}"),
        )
    return desk


def test_a_report_for_people_for_scripts_and_for_spreadsheets(billed: Desk) -> None:
    report = billed.json("cost", "report")
    while report["total"]["unbilled"]:
        report = billed.json("cost", "report")
    lines = {line["project"]: line for line in report["lines"]}
    assert set(lines) == {"paid", "unpaid"}
    assert 1 <= float(lines["paid"]["cost_usd"]) < 30
    assert (lines["unpaid"]["cost_usd"], lines["unpaid"]["unpriced"]) == (None, 1)
    assert report["total"]["cost_usd"] == lines["paid"]["cost_usd"]
    said = billed.say("cost", "report", "--by", "project", "--by", "partition")
    assert "PROJECT" in said
    assert "1 of 2 attempts without a price in their site's file" in said
    assert "2 of 2 attempts not in accounting yet" in said
    rows = list(csv.DictReader(io.StringIO(billed.say("cost", "report", "--csv"))))
    assert [row["project"] for row in rows] == ["paid", "unpaid"]
    assert rows[0]["cost_usd"] == lines["paid"]["cost_usd"]
    assert "so far" in billed.say("show", "paid")


def test_what_runs_is_counted_by_its_time_so_far(desk: Desk) -> None:
    (desk.folder / "mine.yaml").write_text(SITE)
    config = desk.config("long", "sleep 600")
    site = str(desk.folder / "mine.yaml")
    started = desk.json("run", config, "--site", site, "--set", "resources.partition=here")

    def line() -> Any:
        return desk.json("cost", "report", "--by", "run")["total"]

    poll(lambda: line()["running"] == 1, 60, lambda: desk.say("ls"))
    poll(lambda: float(line()["cost_usd"] or 0) > 1, 60, lambda: desk.say("show", "long"))
    shown = desk.json("show", "long")
    assert (shown["cost_usd"], shown["state"]) == (None, "running")
    assert float(shown["unbilled_so_far"]["cost_usd"]) > 1
    assert "about" in desk.say("show", "long")
    assert "1 of 1 attempts run, and are counted by their time so far" in desk.say("cost", "report")
    assert desk.json("cost", "report", "--project", "other")["lines"] == []
    desk.say("cancel", started["run_id"])
    poll(lambda: line()["running"] == 0 and not line()["unbilled"], 60, lambda: desk.say("ls"))
    assert line()["estimated"] == 1
    assert desk.json("show", "long")["unbilled_so_far"] is None


def test_a_terminal_gets_a_table_with_a_bold_sum(billed: Desk) -> None:
    env = {**os.environ, "TERM": "xterm-256color"}
    shown = at_a_terminal("cost", "report", "--by", "run", env=env, cwd=billed.folder)
    assert "total" in shown
    assert "\x1b[1m" in shown


def test_a_time_and_a_project_may_be_named(billed: Desk) -> None:
    assert billed.json("cost", "report", "--project", "paid")["total"]["runs"] == 1
    assert billed.json("cost", "report", "--since", "1h")["total"]["runs"] == 2
    assert billed.json("cost", "report", "--until", "2020-01-01")["lines"] == []
    assert "nothing has ended" in billed.say("cost", "report", "--user", "nobody-else")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--since", "yesterday"), "expected so long ago, like 30d, or a day, like 2026-07-01"),
        (("--since", "30"), "expected so long ago"),
        (("--by", "colour"), "'colour' is not one of 'project'"),
    ],
)
def test_what_is_no_time_and_no_key(desk: Desk, args: tuple[str, str], said: str) -> None:
    assert said in desk.error("cost", "report", *args)


def test_nobody_can_audit_what_no_accounting_knows(billed: Desk) -> None:
    assert billed.json("cost", "audit") == {"checked": 0, "differences": [], "problems": []}
    assert "0 of 0 bills agree" in billed.say("cost", "audit")


def test_names_that_a_spreadsheet_would_execute_are_texts(desk: Desk) -> None:
    from hpcflow.cli.cost import _plain

    assert _plain("=cmd()") == "'=cmd()"
    assert _plain("-3.5") == "-3.5"
    assert _plain("vision") == "vision"
    assert Path(desk.folder).is_dir()
