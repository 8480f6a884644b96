"""`hpcflow budget` as a person types it, and what it means for `hpcflow run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.hostile import put

SITE = """\
name: mine
scheduler: local
has_accounting: false
time_limit_overrun: 0s
scratch: {path: $HPCFLOW_HOME/scratch}
partitions:
  here:
    cpus_per_node: 64
    price: {node_hour_usd: "60", node_hour_su: "1"}
  free:
    cpus_per_node: 64
"""
CONFIG = """
name: small
project: vision
command: [sh, -c, "{shell}"]
launch: {{framework: none, launcher: none}}
resources: {{partition: here, time_limit: 5m}}
"""


@pytest.fixture
def mine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """On a machine where a node costs a dollar a minute."""
    (desk.folder / "mine.yaml").write_text(SITE)
    monkeypatch.setenv("HPCFLOW_SITE", str(desk.folder / "mine.yaml"))
    return desk


def config(desk: Desk, shell: str = "sleep 1") -> str:
    path = desk.folder / "small.yaml"
    path.write_text(CONFIG.format(shell=shell))
    return str(path)


def usd(desk: Desk, scope: str = "project:vision") -> dict[str, Any]:
    found: dict[str, Any] = desk.json("budget", "show", scope)["amounts"]["cost_usd"]
    return found


def test_a_hard_budget_stops_the_next_run_and_its_message_helps(mine: Desk) -> None:
    said = mine.say("budget", "set", "project:vision", "--hard", "8", "--soft", "4")
    assert "project:vision  USD    0.00       0.00  8.00  4.00  8.00" in said
    first = mine.json("run", config(mine, "sleep 600"))
    for command in (("run", "--dry-run"), ("run",)):
        error = mine.error(*command, config(mine))
        assert "budget project:vision has no room: of 8.00 USD, 0.00 USD are spent" in error
        assert "5.00 USD committed to pending and running jobs, and 3.00 USD left" in error
        assert "this attempt may take 5.00 USD in its 5m" in error
        assert "hpcflow budget set project:vision --hard 10.00" in error
    assert len(mine.json("ls")["runs"]) == 1, "nothing was made"
    said = mine.say("run", config(mine), "--set", "resources.time_limit=3m")
    assert "attempt 1" in said, "as the message advised"
    warned = mine.error("budget", "show", "project:vision", code=0)
    assert "8.00 USD of 8.00 USD are spent or committed, more than 4.00 USD" in warned
    refused = mine.json("run", config(mine), code=2)["error"]
    assert refused["kind"] == "BudgetError"
    mine.say("cancel", first["run_id"])
    poll(
        lambda: Decimal(usd(mine)["committed"]) == 0,
        120,
        lambda: mine.say("budget", "show", "project:vision"),
    )
    assert 0 < Decimal(usd(mine)["spent"]) < 2
    assert mine.json("run", config(mine))["attempt"] == 1


@pytest.mark.parametrize(
    "content",
    [b"\0" * 4096, b"garbage\n" * 9, b'{"record": "set", "at'],
    ids=["zeros", "garbage", "torn"],
)
def test_a_budget_whose_file_is_damaged_is_not_silently_none(mine: Desk, content: bytes) -> None:
    """As a crash or a full disk may leave it."""
    mine.say("budget", "set", "project:vision", "--hard", "1")
    file = Path(os.environ["HPCFLOW_HOME"], "budgets", "project", "vision.jsonl")
    file.write_bytes(content)
    run = ["run", config(mine, shell="true"), "--wait"]
    for args, code in ((["budget", "ls"], 0), (["budget", "show", "project:vision"], 2), (run, 0)):
        said = mine.error(*args, code=code)
        assert f"its file {file} is damaged, so it limits nothing" in said, args
        assert "hpcflow budget set project:vision --hard 500" in said
    mine.say("budget", "set", "project:vision", "--hard", "1")
    assert "damaged" not in mine.error("budget", "ls", code=0)
    assert mine.json(*run, code=2)["error"]["kind"] == "BudgetError"


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a private file", "garbage"])
def test_a_budget_that_cannot_be_read_hides_no_other(mine: Desk, kind: str) -> None:
    mine.say("budget", "set", "project:vision", "--hard", "1")
    file = Path(os.environ["HPCFLOW_HOME"], "budgets", "project", "a.jsonl")
    put(kind, file)
    assert [each["scope"] for each in mine.json("budget", "ls")["budgets"]] == ["project:vision"]
    said = mine.error("budget", "ls", code=0)
    assert str(file) in said
    assert kind == "garbage" or f"ls -la {file.parent}\n" in said


def test_a_daemon_without_slurm_waits_for_the_budget_and_goes_on(mine: Desk) -> None:
    path = Path(config(mine, "exit 1"))
    path.write_text(path.read_text() + "retry: {backoff: 1s, backoff_max: 1s, failures: 1}\n")
    mine.say("budget", "set", "project:vision", "--hard", "8")
    run_id = mine.json("run", str(path), "--wait", code=1)["run_id"]
    mine.say("budget", "set", "project:vision", "--hard", "4")

    def waits() -> bool:
        mine.say("daemon", "--once")
        shown = mine.json("show", run_id)
        return (shown["next_action"], shown["next_rule"]) == ("wait", "over_budget")

    poll(waits, 120, lambda: mine.say("show", run_id), every_s=0.5)
    waiting = "wait: budget project:vision of 4.00 USD has no room for 5.00 USD"
    assert waiting in mine.say("ls")
    assert waiting in mine.say("show", run_id)
    assert "wait (over_budget): budget project:vision" in mine.say("history", run_id)
    assert "has no room" in mine.error("resume", run_id)
    for hard in ("4.00", "4.50"):
        mine.say("budget", "set", "project:vision", "--hard", hard)
        said = " ".join(mine.say("why", run_id).split())
        assert f"it waits: budget project:vision has no room: of {hard} USD" in said
        assert "raise it: hpcflow budget set project:vision --hard" in said
        assert "resume" not in said, "that is refused"
    file = Path(os.environ["HPCFLOW_HOME"], "budgets", "project", "vision.jsonl")
    kept = file.rename(file.with_suffix(".kept"))
    file.mkdir()
    assert "it waits: budget project:vision of 4.00 USD has no room" in mine.say("why", run_id)
    assert "the budgets cannot be read now" in mine.error("why", run_id, code=0)
    file.rmdir()
    kept.rename(file)
    mine.say("budget", "set", "project:vision", "--hard", "6", "--soft", "1")
    assert "it waited for a budget, which allows it now" in mine.say("why", run_id)
    said = mine.error("daemon", "--once", code=0)
    assert "are spent or committed, more than 1.00 USD" in said
    assert len(mine.json("show", run_id)["attempts"]) == 2


def test_a_budget_that_nothing_counts_against_is_said_to_be_one(mine: Desk) -> None:
    words = "no known run counts against project:visoin yet"
    assert words in mine.error("budget", "set", "project:visoin", "--hard", "8", code=0)
    mine.say("run", config(mine), "--wait")
    assert "counts against" not in mine.error(
        "budget", "set", "project:vision", "--hard", "8", code=0
    )
    assert "counts against" not in mine.error(
        "budget", "set", "project:visoin", "--hard", "9", code=0
    ), "said once"


def test_nothing_without_a_time_limit_fits_a_hard_budget(mine: Desk) -> None:
    path = Path(config(mine))
    path.write_text(path.read_text().replace(", time_limit: 5m", ""))
    mine.say("budget", "set", "project:vision", "--hard", "1000000")
    error = mine.error("run", str(path))
    assert "it has no time limit, so its share of the USD is not known" in error
    assert "--set resources.time_limit=4h" in error
    mine.say("run", str(path), "--set", "resources.time_limit=5m", "--wait")


def test_what_a_pipe_reads_is_not_folded(mine: Desk) -> None:
    long = "project:" + "vision" * 10
    mine.say("budget", "set", long, "--hard", "1000000000")
    assert long in mine.say("budget", "ls")


def test_changes_are_kept_with_who_when_and_why(mine: Desk) -> None:
    mine.say("budget", "set", "user:ada", "--hard", "100", "--why", "the first grant")
    mine.say("budget", "set", "user:ada", "--unit", "gpu_hours", "--hard", "50", "--per", "month")
    mine.say("budget", "set", "user:ada", "--hard", "none", "--on-exceeded", "save_and_stop")
    shown = mine.json("budget", "show", "user:ada")
    assert shown["per"] == "month"
    assert [each["set"]["limits"] for each in shown["changes"]] == [
        {"cost_usd": {"hard": "100"}},
        {"cost_usd": {"hard": "100"}, "gpu_hours": {"hard": "50"}},
        {"gpu_hours": {"hard": "50"}},
    ]
    assert shown["changes"][0]["why"] == "the first grant"
    assert shown["changes"][0]["by"] == shown["changes"][2]["by"] != ""
    said = mine.say("budget", "remove", "user:ada", "--why", "over")
    assert "user:ada is removed" in said
    said = mine.say("budget", "show", "user:ada")
    assert "was removed; it limits nothing now" in said
    assert "hard 100.00 USD; when exceeded: finish (the first grant)" in said
    assert "hard 50.00 GPU hours per month; when exceeded: save and stop" in said
    assert "removed (over)" in said
    assert "no budgets; set one" in mine.say("budget", "ls")
    assert mine.json("budget", "ls")["budgets"] == []


def test_what_has_no_price_is_counted_in_hours_and_never_as_nothing(mine: Desk) -> None:
    mine.say("budget", "set", "project:vision", "--hard", "8")
    free = ("--set", "resources.partition=free")
    error = mine.error("run", config(mine), *free)
    assert "limited in USD, but this attempt cannot be counted: partition free has no" in error
    assert "write `price` into the site file" in error
    mine.say("budget", "set", "project:vision", "--hard", "100", "--unit", "gpu_hours")
    error = mine.error("run", config(mine), *free)
    assert "cannot be counted" in error, "it takes no GPU hours, which says nothing of its price"
    mine.say("budget", "set", "project:vision", "--hard", "none", "--soft", "8")
    warned = mine.error("run", config(mine), *free, "--wait", code=0)
    assert "1 attempt without a price in USD, counted only in hours" in warned
    assert usd(mine)["unknown"] == 1
    mine.say("budget", "set", "project:vision", "--hard", "8")
    error = mine.error("run", config(mine), "--set", "resources.time_limit=11m")
    assert "project:vision has no room: of 8.00 USD" in error, "where there is a price it holds"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("set", "vision", "--hard", "5"), "not the name of a budget: 'vision'"),
        (("set", "project:../x", "--hard", "5"), "not the name of a budget: 'project:../x'"),
        (("set", "group:x", "--hard", "5"), "write it like project:vision"),
        (("set", "project:vision"), "a budget needs a limit, and this one would have none"),
        (("set", "project:vision", "--hard", "-5"), "expected an amount like 500"),
        (("set", "project:vision", "--hard", "NaN"), "expected an amount like 500"),
        (("set", "project:vision", "--hard", "5", "--soft", "6"), "is more than the hard one"),
        (("show", "project:vision"), "there is no budget of project:vision"),
        (("remove", "project:vision"), "hpcflow budget set project:vision --hard 500"),
    ],
)
def test_what_is_no_budget(mine: Desk, args: tuple[str, ...], said: str) -> None:
    assert said in mine.error("budget", *args)


def test_of_two_that_are_sent_at_once_only_one_passes(mine: Desk) -> None:
    """Real processes, that begin at the same moment, again and again."""
    path = config(mine, "sleep 600")
    go = mine.folder / "go"
    program = (
        "import sys, time, pathlib\n"
        "from hpcflow.cli.main import main\n"
        "import hpcflow.launch.run, hpcflow.launch.plan, hpcflow.schedulers.local\n"
        "print('ready', flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.001)\n"
        "sys.exit(main(['run', sys.argv[2], '--json']))\n"
    )
    mine.say("budget", "set", "project:vision", "--hard", "8")  # room for one, and not for two
    for _ in range(3):
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(go), path],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ.copy(),
            )
            for _ in range(2)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        go.touch()
        said = [racer.communicate(timeout=120) for racer in racers]
        go.unlink()
        assert sorted(racer.returncode for racer in racers) == [0, 2], said
        (lost,) = [json.loads(out) for out, _ in said if "error" in out]
        assert lost["error"]["kind"] == "BudgetError"
        (run_id,) = [json.loads(out)["run_id"] for out, _ in said if "error" not in out]
        assert usd(mine)["committed"].rstrip("0") == "5."
        mine.say("cancel", run_id)
        poll(
            lambda: Decimal(usd(mine)["committed"]) == 0,
            120,
            lambda: mine.say("budget", "show", "project:vision"),
        )


def test_a_folder_of_a_team_is_as_open_as_it_was_made(mine: Desk) -> None:
    team = mine.folder / "team"
    site = mine.folder / "mine.yaml"
    site.write_text(SITE + f"budgets_dir: {json.dumps(str(team))}\n")
    error = mine.error("run", config(mine))
    assert "the limits are not known" in error
    assert "mkdir -m 2770" in error
    team.mkdir()
    team.chmod(0o2770)
    mine.say("budget", "set", "project:vision", "--hard", "8")
    mine.json("run", config(mine), "--wait")
    file = team / "project" / "vision.jsonl"
    assert file.stat().st_mode & 0o777 == 0o660
    assert (team / "lock").stat().st_mode & 0o777 == 0o660
    assert (team / "project").stat().st_mode & 0o7777 == 0o2770
    assert "committed" in file.read_text()
    assert not (Path(os.environ["HPCFLOW_HOME"]) / "budgets").exists()
    poll(lambda: Decimal(usd(mine)["spent"]) > 0, 120, lambda: file.read_text())


def test_a_ledger_that_is_down_neither_blocks_nor_lets_pass(
    mine: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.say("budget", "set", "project:vision", "--hard", "8")
    monkeypatch.setenv("HPCFLOW_LEDGER", "postgresql://nobody@127.0.0.1:1/none")
    assert "attempt 1" in mine.say("run", config(mine, "sleep 1"))
    assert "has no room" in mine.error("run", config(mine))
    shown = mine.error("budget", "show", "project:vision", code=0)
    assert "shown without the ledger, amounts may be out of date" in shown
    mine.error("budget", "set", "project:ocean", "--hard", "8", code=1)
    raised = mine.error("budget", "set", "project:vision", "--hard", "9", code=0)
    assert "the budget is set anyway" in raised
