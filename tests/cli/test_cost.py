"""`hpcflow cost` as a person types it."""

from __future__ import annotations

import csv
import io
import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.costs.rows import window
from hpcflow.cli.session import Session
from hpcflow.storage.layout import Home
from hpcflow.storage.runs import list_runs
from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.cli.test_live_view import at_a_terminal
from tests.mirror.runs import save

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
            *("run", config, "--site", str(desk.folder / "mine.yaml")),
            *("--set", f"resources.partition={partition}", "--set", f"project={name}"),
            *("--set", f"resources.account={name}-account"),
        )
    for name in ("paid", "unpaid"):
        desk.say("wait", name)
    poll(lambda: not desk.json("cost", "report")["total"]["unbilled"], 120, "a bill")
    return desk


def test_a_report_for_people_for_scripts_and_for_spreadsheets(billed: Desk) -> None:
    report = billed.json("cost", "report")
    lines = {line["project"]: line for line in report["lines"]}
    assert set(lines) == {"paid", "unpaid"}
    assert 1 <= float(lines["paid"]["cost_usd"]) < 30
    assert (lines["unpaid"]["cost_usd"], lines["unpaid"]["unpriced"]) == (None, 1)
    assert report["total"]["cost_usd"] == lines["paid"]["cost_usd"]
    said = billed.say("cost", "report", "--by", "project", "--by", "partition")
    assert "PROJECT" in said
    assert "1 of 2 attempts without a price in their site's file" in said
    assert "2 of 2 attempts not in accounting" in said
    rows = list(csv.DictReader(io.StringIO(billed.say("cost", "report", "--csv"))))
    assert [row["project"] for row in rows] == ["paid", "unpaid"]
    assert rows[0]["cost_usd"] == lines["paid"]["cost_usd"]
    by_account = billed.json("cost", "report", "--by", "account")
    assert [line["account"] for line in by_account["lines"]] == ["paid-account", "unpaid-account"]
    assert by_account["total"]["cost_usd"] == report["total"]["cost_usd"]
    assert "so far" in billed.say("show", "paid")


def test_a_page_for_a_browser(billed: Desk, tmp_path: Path) -> None:
    page = tmp_path / "my costs.html"
    assert billed.say("cost", "report", "--html", str(page)) == f"{page}\n"
    assert page.stat().st_mode & 0o777 == 0o600
    text = page.read_text()
    assert "by project" in text
    assert "unpaid" in text
    assert "1 of 2 attempts without a price" in text
    said = billed.json("cost", "report", "--by", "run", "--user", "nobody", "--html", str(page))
    assert (said["html"], said["lines"]) == (str(page), [])
    assert ", user nobody only, by run." in page.read_text()
    assert "there is no folder" in billed.error("cost", "report", "--html", "/none/costs.html")


def test_who_used_how_much_of_a_project(billed: Desk) -> None:
    teams = {team["project"]: team for team in billed.json("cost", "showback")["teams"]}
    assert [member["share"] for member in teams["paid"]["members"]] == [1.0]
    assert (teams["paid"]["share_of"], teams["unpaid"]["share_of"]) == ("USD", "hours")
    said = billed.say("cost", "showback")
    assert "100.0 %" in said
    teams = billed.json("cost", "showback", "--by", "account")["teams"]
    assert [team["account"] for team in teams] == ["paid-account", "unpaid-account"]
    assert "if something has no price in USD, shares are of the hours" in said
    rows = list(csv.DictReader(io.StringIO(billed.say("cost", "showback", "--csv"))))
    assert [row["project"] for row in rows] == ["paid", "unpaid"]
    assert rows[1]["share_of"] == "hours"
    assert "no attempts ended" in billed.say("cost", "showback", "--project", "none")
    assert billed.say("cost", "showback", "--project", "none", "--csv") == "project\n"


def test_what_wasted_the_most_and_what_to_do(billed: Desk) -> None:
    assert "ended in this time wasted nothing" in billed.say("cost", "wasted")
    failing = billed.config("failing", "sleep 1; exit 3")
    site = str(billed.folder / "mine.yaml")
    billed.say("run", failing, "--wait", "--site", site, code=1)
    poll(lambda: billed.json("cost", "wasted")["runs"], 120, "a bill")
    (found,) = billed.json("cost", "wasted", "--top", "1")["runs"]
    assert found["run_id"].startswith("failing-")
    assert (found["share"], found["unsaved_hours"] > 0) == (1.0, True)
    said = billed.say("cost", "wasted")
    assert "it ended before its first checkpoint (1 × failed)" in said
    assert f"hpcflow logs {found['run_id']}" in said


def test_checkpoints_that_are_kept_and_fetched_have_lines_of_their_own(
    desk: Desk, home: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    mirror = f"mirror: {{url: {store}, price: {{storage_usd_per_gb_month: '1e6', "
    (desk.folder / "mine.yaml").write_text(SITE + mirror + "egress_usd_per_gb: '1000'}}\n")
    config = desk.config("kept", "true")
    desk.say("run", config, "--wait", "--site", str(desk.folder / "mine.yaml"))
    assert desk.json("cost", "report")["storage"] == []
    (run_dir,) = list_runs(Home(home))
    save(run_dir, 400)
    desk.say("mirror", "--once")
    shutil.rmtree(run_dir.path)
    desk.say("restore", run_dir.path.name)

    report = desk.json("cost", "report", "--by", "run")
    (line,) = report["storage"]
    assert (line["run"], line["place"]) == (run_dir.path.name, str(store))
    assert float(line["storage_usd"]) > 0
    assert 0.1 < float(line["egress_usd"]) < 0.2, "100,000 bytes, and small files"
    assert float(report["storage_total"]["cost_usd"]) >= float(line["cost_usd"])
    said = desk.say("cost", "report")
    assert "CHECKPOINTS IN" in said
    assert said.splitlines()[-1].split()[-2:] == ["0.00", f"{float(line['egress_usd']):.2f}"]
    *_, last = csv.DictReader(io.StringIO(desk.say("cost", "report", "--csv")))
    assert (last["project"], last["place"], last["attempts"]) == ("tests", str(store), "")
    page = tmp_path / "costs.html"
    desk.say("cost", "report", "--html", str(page))
    assert "Stored and fetched checkpoints" in page.read_text()
    assert desk.json("cost", "report", "--until", "2020-01-01")["storage"] == []


def test_what_runs_is_counted_by_its_time_so_far(desk: Desk) -> None:
    (desk.folder / "mine.yaml").write_text(SITE)
    config = desk.config("long", "sleep 600")
    site = str(desk.folder / "mine.yaml")
    started = desk.json("run", config, "--site", site, "--set", "resources.partition=here")

    def line() -> Any:
        return desk.json("cost", "report", "--by", "run")["total"]

    poll(lambda: line()["running"] == 1, 120, lambda: desk.say("ls"))
    poll(lambda: float(line()["cost_usd"] or 0) > 1, 120, lambda: desk.say("show", "long"))
    shown = desk.json("show", "long")
    assert (shown["cost_usd"], shown["state"]) == (None, "running")
    assert float(shown["unbilled_so_far"]["cost_usd"]) > 1
    assert "about" in desk.say("show", "long")
    assert "1 of 1 attempt running: counted by the time so far" in desk.say("cost", "report")
    assert desk.json("cost", "report", "--project", "other")["lines"] == []
    desk.say("cancel", started["run_id"])
    poll(lambda: line()["running"] == 0 and not line()["unbilled"], 120, lambda: desk.say("ls"))
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
    assert "no attempts ended" in billed.say("cost", "report", "--user", "nobody-else")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--since", "yesterday"), "expected an age such as 30d, or a day such as 2026-07-01"),
        (("--since", "30"), "expected an age"),
        (("--since", "0001-01-01T00:00:00+14:00"), "a day such as 2026-07-01"),
        (("--until", "9999-12-31T23:59:59-14:00"), "a day such as 2026-07-01"),
        (("--by", "colour"), "'colour' is not one of 'project'"),
    ],
)
def test_what_is_no_time_and_no_key(desk: Desk, args: tuple[str, str], said: str) -> None:
    assert said in desk.error("cost", "report", *args)


@pytest.mark.usefixtures("desk")
def test_since_the_first_day_of_all_is_since_there_are_runs() -> None:
    first = datetime(1, 1, 1, tzinfo=timezone.utc)
    since = window(Session(), first, None).since
    assert since is not None
    assert since - timedelta(days=1) > first, "the audit looks at the day before, too"


def test_nobody_can_audit_what_no_accounting_knows(billed: Desk) -> None:
    found = billed.json("cost", "audit")
    assert (found["checked"], found["uncheckable"]) == (0, 2)
    assert not any(found[key] for key in ("differences", "unknown", "helpers", "problems"))
    said = billed.say("cost", "audit")
    assert said.strip() == "2 bills not checked: no accounting record to compare"


def test_names_that_a_spreadsheet_would_execute_are_texts(desk: Desk) -> None:
    from hpcflow.cli.costs.table import plain

    assert plain("=cmd()") == "'=cmd()"
    assert plain("-3.5") == "-3.5"
    assert plain("vision") == "vision"
    assert plain("\uff1dcmd()") == "'\uff1dcmd()", "as wide as a letter of Japanese"
    assert plain("\x1b[2Jada\n") == "\ufffd[2Jada\ufffd", "nor is a terminal told anything"
    assert Path(desk.folder).is_dir()
