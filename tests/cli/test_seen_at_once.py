"""What `show`, `ls` and `logs` say at one look: what a run is, whose, and of which sweep."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcflow import __version__
from tests.cli.desk import Desk
from tests.cli.trained import Trained

SWEEP = "lr-search-20260101-abcdefgh"


def copy(home: Path, source: str, run_id: str, **changed: Any) -> str:
    """Write the rows of a run again as those of another one, which is of another home."""
    changed |= {"run_id": run_id, "name": run_id.rsplit("-", 2)[0]}
    with sqlite3.connect(home / "ledger.sqlite") as database:
        for table in ("run", "attempt", "checkpoint"):
            cursor = database.execute(f"select * from {table} where run_id = ?", (source,))
            names = [column[0] for column in cursor.description]
            marks = ", ".join("?" * len(names))
            for row in cursor.fetchall():
                values = [changed.get(*pair) for pair in zip(names, row, strict=True)]
                database.execute(f"insert into {table} values ({marks})", values)
    return run_id


def listed(desk: Desk, *args: str) -> list[str]:
    """The names of the runs, in their order."""
    lines = desk.say("ls", *args).splitlines()[1:]
    return [line.split()[0].rsplit("-", 2)[0] for line in lines if line.startswith("run-")]


def test_show_says_what_a_run_was_made_from_and_its_state_once(desk: Desk) -> None:
    def git(*args: str) -> str:
        user = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
        return subprocess.run(
            ["git", *user, *args], cwd=desk.folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    config = Path(desk.config("digits", "true"))
    config.write_text(config.read_text() + "params: {lr: 0.1, optimizer: adamw}\n")
    git("init", "-q")
    git("add", config.name)
    git("commit", "-qm", "a config")
    run_id = desk.json("run", str(config), "--set", "params.lr=0.25", "--wait")["run_id"]

    said = desk.json("show", run_id)
    assert said["params"] == {"lr": 0.25, "optimizer": "adamw"}
    assert said["tags"] == ["quick"]
    assert said["overrides"] == ["params.lr=0.25"]
    assert (said["commit"], said["has_uncommitted_changes"]) == (git("rev-parse", "HEAD"), False)
    shown = desk.say("show", run_id).splitlines()
    assert shown[0] == f"{run_id}  completed"
    assert "  params         lr=0.25  optimizer=adamw" in shown
    assert "  tags           quick" in shown
    assert "  overrides      params.lr=0.25" in shown
    assert f"  commit         {git('rev-parse', 'HEAD')}" in shown

    trained = Path(said["run_dir"])
    trained.rename(trained.with_name("purged"))
    gone = desk.json("show", run_id)
    assert [gone[key] for key in ("params", "overrides", "commit")] == [
        said[key] for key in ("params", "overrides", "commit")
    ], "the record is in the home"


@pytest.mark.parametrize("word", ["completed", "failed"])
def test_a_state_is_not_said_twice(desk: Desk, word: str) -> None:
    run_id = desk.json(
        "run", desk.config("digits", "exit 3" if word == "failed" else "true"), "--wait",
        code=1 if word == "failed" else 0,
    )["run_id"]  # fmt: skip
    for command in (("show", run_id), ("history", run_id), ("ls",)):
        line = next(line for line in desk.say(*command).splitlines() if run_id in line)
        assert line.count(word) == 1


def test_ls_finds_by_user_project_sweep_name_time_and_sorts(desk: Desk, home: Path) -> None:
    source = desk.json("run", desk.config("source", "true"), "--wait")["run_id"]
    runs: dict[str, dict[str, Any]] = {
        "a": {"user_name": "eve", "gpu_hours": 5.0, "created_at": "2026-01-01T00:00:00.000Z"},
        "b": {"project": "vision", "gpu_hours": 9.0, "cost_usd": "1.5", "state": "failed"},
        "c": {"created_at": "2027-01-01T00:00:00.000Z"},
    }
    for letter, changed in runs.items():
        copy(home, source, f"run-{letter}-20260101-abcdefgh", **changed)

    assert listed(desk) == ["run-c", "run-b", "run-a"]
    assert listed(desk, "--user", "eve") == ["run-a"]
    assert " eve " in desk.say("ls")
    assert listed(desk, "--project", "vision") == ["run-b"]
    assert listed(desk, "--name", "run-c") == ["run-c"]
    assert listed(desk, "--state", "failed") == ["run-b"]
    assert listed(desk, "--since", "1h") == ["run-c", "run-b"]
    assert listed(desk, "--since", "2025-12-31", "--limit", "1") == ["run-c"]
    assert listed(desk, "--sort", "gpu-hours")[:2] == ["run-b", "run-a"]
    assert listed(desk, "--sort", "name", "--limit", "2") == ["run-a", "run-b"]
    assert listed(desk, "--sort", "cost")[0] == "run-b"
    assert listed(desk, "--sort", "state")[-1] == "run-b"
    assert [each["name"] for each in desk.json("ls", "--limit", "1")["runs"]] == ["run-c"]
    assert desk.say("ls", "--user", "nobody-of-this-name") == "no runs that match\n"
    assert "expected an age such as 30d" in desk.error("ls", "--since", "soon")


def test_trials_are_listed_when_asked_for(desk: Desk, home: Path) -> None:
    own = desk.json("run", desk.config("run-own", "true"), "--wait")["run_id"]
    trial = copy(home, own, "run-trial-20260101-abcdefgh", parent_sweep=SWEEP)

    assert listed(desk) == ["run-own"]
    assert "not shown; list them: hpcflow ls --sweep SWEEP" in desk.say("ls")
    assert sorted(listed(desk, "--all")) == ["run-own", "run-trial"]
    assert listed(desk, "--sweep", SWEEP) == listed(desk, "--sweep", "lr-search") == ["run-trial"]
    assert listed(desk, "--sweep", "lr_search") == listed(desk, "--sweep", "lr") == []
    assert {each["run_id"] for each in desk.json("ls")["runs"]} == {own, trial}
    assert f"  sweep          {SWEEP}" in desk.say("show", trial)


def test_a_run_of_another_user_is_shown_as_the_ledger_has_it(desk: Desk, home: Path) -> None:
    trained = Trained(desk)
    trained.save(400, loss=0.5)
    desk.say("ls")
    theirs = "theirs-20260101-abcdefgh"
    copy(home, trained.run_id, theirs, user_name="eve", run_dir="/eve/x")

    for text in (theirs, "theirs", "theirs-2026"):
        shown = desk.say("show", text)
        assert shown.startswith(f"{theirs}  completed\n")
        assert "  user           eve (from the ledger: no run of this HPCFLOW_HOME)\n" in shown
        assert "400" in shown, "its checkpoint"
        assert "gone" not in shown, "nobody has looked into a directory of eve's"
    said = desk.json("show", theirs)
    assert (said["user"], said["overrides"], said["checkpoints"][0]["complete"]) == (
        *("eve", None),
        None,
    )
    assert "no run 'their'" not in desk.say("show", "their")
    assert "no run 'thei%'" in desk.error("show", "thei%")
    assert "no run 'nothing-like-it'" in desk.error("show", "nothing-like-it")
    assert "no run" in desk.error("cancel", theirs), "it can be looked at alone"


def test_nothing_is_opened_where_a_row_of_another_user_leads_to(desk: Desk, home: Path) -> None:
    """It can name any folder: one that waits for a server, or one of mine."""
    run_id = desk.json("run", desk.config("digits", "false"), "--wait", code=1)["run_id"]
    mine = Path(desk.json("show", run_id)["run_dir"])
    (mine / "attempts/0001/out.log").write_text("read\n")
    assert desk.json("show", run_id)["failure"]["lines"] == ["read"]
    theirs = copy(home, run_id, "theirs-20260101-abcdefgh", user_name="eve", run_dir=str(mine))
    assert "read" not in desk.say("show", theirs)
    assert desk.json("show", theirs)["failure"] is None


def test_logs_begin_with_the_last_lines(desk: Desk) -> None:
    trained = Trained(desk)
    log = trained.dir.attempt(1).log
    lines = [f"line {number}" for number in range(30_000)]
    for end in ("\n", ""):
        log.write_text("\n".join(lines) + end)
        for number in (1, 2, 20_000, 40_000):
            said = desk.say("logs", trained.run_id, "--tail", str(number))
            assert (
                said.split("\n")[:-1] == lines[-number:]
                if end
                else said.split("\n") == (lines[-number:])
            )
        assert desk.say("logs", trained.run_id, "--tail", "0") == ""
    log.write_text("\n\n\n")
    assert desk.say("logs", trained.run_id, "--tail", "2", "--follow") == "\n\n"


def test_logs_of_one_rank_are_its_lines_without_their_label(desk: Desk) -> None:
    trained = Trained(desk)
    attempt = trained.dir.attempt(1)
    assert desk.say("logs", trained.run_id, "--rank", "0") == attempt.log.read_text()
    assert "has only rank 0" in desk.error("logs", trained.run_id, "--rank", "1")

    attempt.script.write_text("export WORLD_SIZE=12\n")
    for rank in ("0", "1"):
        assert "does not say which rank" in desk.error("logs", trained.run_id, "--rank", rank)

    attempt.script.write_text(
        "export WORLD_SIZE=12\n"
        "rank_process=$HPCFLOW_RUN_DIR/runtime/hpcflow/runtime/rank_process.py\n"
    )
    lines = [f"[rank{rank}]: step {step}" for step in range(9_000) for rank in (0, 1, 11)]
    attempt.log.write_text("srun: a line of its own\n" + "\n".join([*lines, "[rank1]: the end"]))
    own = "".join(f"step {step}\n" for step in range(9_000))

    def said(rank: int, *options: str) -> str:
        return desk.say("logs", trained.run_id, "--rank", str(rank), *options)

    assert said(11) == own
    assert said(1, "--follow") == f"{own}the end"
    assert said(11, "--tail", "2") == "step 8998\nstep 8999\n"
    assert said(1, "--tail", "2", "--follow") == "step 8999\nthe end"
    assert said(1, "--tail", "0") == said(7) == ""
    assert desk.code("logs", trained.run_id, "--rank", "7") == 0
    restarted = trained.dir.attempt(2)  # by Slurm: the script is that of the attempt before
    restarted.path.mkdir()
    restarted.log.write_text("[rank1]: again\n")
    assert said(1, "--attempt", "2") == "again\n"


def test_the_version(desk: Desk) -> None:
    assert desk.say("--version") == f"hpcflow {__version__}\n"
