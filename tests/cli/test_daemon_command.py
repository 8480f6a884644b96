"""The daemon, hold, release and history, typed by a person, over real runs on this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow.cli.control.daemon import _Log
from hpcflow.cli.main import main
from hpcflow.cli.session import Session
from hpcflow.clock import SystemClock
from hpcflow.model.journal import Submitted
from hpcflow.requeue.tick import Report
from hpcflow.settings import load_settings
from hpcflow.storage.runs import run_dir_of
from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.daemons import daemon
from tests.json_output import checked

#: Leaves with "send me again" until it has been sent three times.
PATIENT = "test $HPCFLOW_ATTEMPT = 3 || exit 75"


def test_round_by_round_a_run_comes_to_its_end(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", PATIENT), "--wait", code=1)
    for number in (2, 3):
        said = desk.say("daemon", "--once")
        assert f"{run['run_id']}  resubmit  (go_on: attempt {number - 1} ended as" in said
        desk.json("wait", "patient", code=0 if number == 3 else 1)
    assert desk.say("daemon", "--once") == "", "there is nothing to say"
    story = desk.json("history", "patient")
    assert story["state"] == "completed"
    causes = [chapter["cause"] for chapter in story["attempts"]]
    assert causes == ["checkpointed", "checkpointed", "completed"]
    decided = [(each["attempt"], each["action"], each["rule"]) for each in story["entries"]]
    assert decided == [(1, "resubmit", "go_on"), (2, "resubmit", "go_on")]
    told = desk.say("history", "patient")
    assert told.count("checkpointed (exit code 75), ran ") == 2
    assert "resubmit (go_on): attempt 2 ended as checkpointed\n" in told
    assert told.startswith(f"{run['run_id']}  completed\n")
    assert "lost" not in told, "nobody knows: the program says nothing of train steps"


def test_what_need_not_wait_is_said_by_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCFLOW_HOME", str(tmp_path))
    log = _Log(Session(), as_json=False)
    log.say(Report(lifted={"small-20260301-abcdefgh": "4711"}))
    said = capsys.readouterr().out
    assert "small-20260301-abcdefgh  start now  (restarted: Slurm restarted its job" in said
    assert said.endswith(", job 4711\n")


def test_hold_and_release(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", "exit 75"), "--wait", code=1)
    assert desk.json("hold", "patient")["runs"] == [
        {"run_id": run["run_id"], "request": "held", "error": None}
    ]
    desk.say("daemon", "--once")
    assert desk.json("history", "patient")["next_action"] == "held"
    assert "held" in desk.say("ls")
    assert "released" in desk.say("release", "patient")
    assert run["run_id"] in desk.json("daemon", "--once")["round"]["sent"]


def test_what_was_cancelled_is_not_released_but_resumed(desk: Desk) -> None:
    desk.json("run", desk.config("patient", "exit 75"), "--wait", code=1)
    desk.say("cancel", "patient")
    for word in ("release", "hold"):
        (said,) = desk.json(word, "patient", code=2)["runs"]
        assert said["request"] is None
        assert "was cancelled" in said["error"]["message"]
        assert "hpcflow resume" in said["error"]["next_action"]
    assert desk.json("show", "patient")["state"] == "cancelled"


def test_what_is_completed_is_neither_held_nor_released(desk: Desk) -> None:
    desk.json("run", desk.config("done", "true"), "--wait")
    other = desk.json("run", desk.config("patient", "exit 75"), "--wait", code=1)["run_id"]
    for word in ("hold", "release"):
        assert "is completed, and hpcflow submits no more jobs for it" in desk.error(word, "done")
        refused, done = desk.json(word, "done", "patient", code=1)["runs"]
        assert "hpcflow run CONFIG" in refused["error"]["next_action"]
        assert done["run_id"] == other, "the others are"
        assert done["request"] == ("held" if word == "hold" else "released")


def test_what_scancel_has_ended_is_held_once_it_was_released(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", "exit 75"), "--wait", code=1)
    journal = run_dir_of(load_settings().home, run["run_id"]).journal
    lines = journal.read_text().replace('"checkpointed"', '"cancelled"')
    journal.write_text(lines)
    assert "was cancelled" in desk.error("hold", "patient")
    restarted = Submitted(at=SystemClock().now(), attempt=2, job_id="7", how="restarted")
    journal.write_text(lines + restarted.to_line())
    assert "held" in desk.say("hold", "patient"), "it runs"
    journal.write_text(lines)
    assert "released" in desk.say("release", "patient")
    assert "held" in desk.say("hold", "patient")


def test_a_run_whose_directory_is_gone_says_so_and_what_to_do(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", PATIENT), "--wait", code=1)
    path = Path(run["run_dir"])
    shutil.rmtree(path)
    for word in ("hold", "release"):
        (said,) = desk.json(word, "patient", code=1)["runs"]
        assert f"the run directory of {run['run_id']} is gone" in said["error"]["message"]
        assert f"hpcflow cancel {run['run_id']}" in said["error"]["next_action"]
        assert not path.exists()
    path.parents[1].rename(path.parents[1].with_name("away"))
    (said,) = desk.json("hold", "patient", code=1)["runs"]
    assert f"{path.parents[1]} is missing" in said["error"]["message"]
    assert "mounted" in said["error"]["next_action"]


def test_a_run_whose_journal_is_gone_is_neither_held_nor_sent(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", PATIENT), "--wait", code=1)
    journal = run_dir_of(load_settings().home, run["run_id"]).journal
    journal.unlink()
    for word in ("hold", "release"):
        (said,) = desk.json(word, "patient", code=1)["runs"]
        assert "is missing, so the state of its jobs is unknown" in said["error"]["message"]
    desk.say("daemon", "--once", code=1)
    assert not journal.exists()


def test_nobody_waits_for_a_run_that_is_gone_though_a_daemon_lives(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", PATIENT), "--wait", code=1)
    desk.say("ls")
    words = [sys.executable, "-m", "hpcflow.cli.main", "daemon", "--interval", "600"]
    desk.say("hold", "patient")
    log = desk.folder / "daemon.log"
    with log.open("wb") as file:
        loop = subprocess.Popen(words, stdout=file, stderr=file, env=os.environ)
    poll(lambda: main(["daemon", "status"]) == 0, 120, log.read_text)
    desk.say("release", "patient")
    shutil.rmtree(run["run_dir"])
    assert desk.json("wait", "patient", code=1)["state"] != "completed"
    loop.send_signal(signal.SIGTERM)
    assert loop.wait(120) == 0


def test_a_stopped_run_says_why_and_can_be_released(desk: Desk) -> None:
    config = Path(desk.config("doomed", "exit 3"))
    config.write_text(config.read_text() + "retry: {failures: 0}\n")
    desk.json("run", str(config), "--wait", code=1)
    said = desk.say("daemon", "--once")
    assert "stop  (budget: ended once as failed, and failures is 0)" in said
    told = desk.json("history", "doomed")
    assert (told["next_action"], told["next_rule"]) == ("stop", "budget")
    assert desk.say("daemon", "--once") == ""
    desk.say("release", "doomed")
    assert "resubmit" in desk.say("daemon", "--once")
    told = desk.say("history", "doomed")
    words = ("failed (exit code 3)", "stop (budget): ended once as", "released by ",
             "resubmit (go_on)", "attempt 2: job")  # fmt: skip
    places = [told.index(each) for each in words]
    assert places == sorted(places), "who reads this later"


def test_ls_says_what_is_next_and_how_soon(desk: Desk) -> None:
    config = Path(desk.config("unlucky", "exit 3"))
    config.write_text(config.read_text() + "retry: {backoff: 2h, backoff_max: 2h}\n")
    desk.json("run", str(config), "--wait", code=1)
    desk.say("daemon", "--once")
    # A quarter more at most, by chance; and a minute has gone by at most.
    assert re.search(r"  wait: backoff, (1h 59m|2h [0-3]\dm)  ", desk.say("ls"))


def test_the_loop_says_who_it_is_and_ends_at_sigterm(desk: Desk) -> None:
    assert "no daemon has run yet" in desk.say("daemon", "status", code=1)
    run = desk.json("run", desk.config("patient", PATIENT), "--wait", code=1)
    words = [sys.executable, "-m", "hpcflow.cli.main", "daemon", "--interval", "1"]
    log = desk.folder / "daemon.log"
    with log.open("wb") as file:
        loop = subprocess.Popen(words, stdout=file, stderr=file, env=os.environ)
    poll(lambda: main(["daemon", "status"]) == 0, 120, log.read_text)
    assert f"process {loop.pid} on" in desk.say("daemon", "status")
    assert desk.json("wait", "patient")["state"] == "completed", "wait knows that it goes on"
    loop.send_signal(signal.SIGTERM)
    assert loop.wait(120) == 0
    assert log.read_text().count("go_on") == 2
    settings = load_settings()
    assert log.read_text().splitlines()[0][21:] == (
        f"supervising the runs of {settings.user} in {settings.home.path}, on local, 1 active; "
        f"ledger {settings.home.ledger}; a round every 1 s"
    )
    assert desk.json("daemon", "status", code=1)["lease"]["fence"] == 1
    assert desk.json("show", "patient")["run_id"] == run["run_id"]


@pytest.mark.usefixtures("desk")
def test_scripts_read_first_what_the_daemon_supervises(home: Path) -> None:
    words = [sys.executable, "-m", "hpcflow.cli.main", "daemon", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) as loop:
        assert loop.stdout is not None
        said = checked(["daemon"], loop.stdout.readline())["supervises"]
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(120) == 0
    assert (said["home"], said["sites"], said["runs_under_way"]) == (str(home), ["local"], 0)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "0", "-5", "soon"])
def test_an_interval_that_nobody_can_wait_for_is_refused(desk: Desk, seconds: str) -> None:
    assert "'--interval'" in desk.error("daemon", "--interval", seconds)


def test_status_speaks_of_the_daemon_of_this_home(
    desk: Desk, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCFLOW_LEDGER", f"sqlite:///{desk.folder}/common.sqlite")
    daemon()
    assert "process 7 on login1 is the active daemon" in desk.say("daemon", "status")
    monkeypatch.setenv("HPCFLOW_HOME", str(home.with_name("second")))
    assert "no daemon has run yet" in desk.say("daemon", "status", code=1)


def test_status_does_not_take_a_dead_process_for_one_at_work(desk: Desk) -> None:
    """Killed, it has left its lease taken: for some minutes, nobody acts."""
    with subprocess.Popen(["true"]) as dead:
        pass
    here = socket.gethostname()
    for host, pid, code in ((here, os.getpid(), 0), (here, dead.pid, 1), ("login1", dead.pid, 0)):
        daemon(pid=pid, host=host)
        assert desk.json("daemon", "status", code=code)["is_alive"] == (code == 0)
        said = desk.say("daemon", "status", code=code)
        assert f"on {host} {'was the last' if code else 'is the active'} daemon" in said
        assert ("was killed and still has the lease; another daemon can act from" in said) == (
            code == 1
        )


def test_status_knows_the_daemon_while_the_ledger_is_down(desk: Desk, home: Path) -> None:
    daemon()
    (home / "ledger.sqlite").write_text("no database " * 100)
    assert "process 7 on login1 is the active daemon" in desk.say("daemon", "status")


def test_one_round_has_no_interval(desk: Desk) -> None:
    assert "--once makes one round" in desk.error("daemon", "--once", "--interval", "5")


def test_the_loop_says_each_trouble_once(desk: Desk) -> None:
    spoiled = desk.json("run", desk.config("spoiled", PATIENT), "--wait", code=1)
    desk.say("ls")
    run_dir_of(load_settings().home, spoiled["run_id"]).run_json.write_text("{")
    desk.json("run", desk.config("patient", PATIENT), "--wait", code=1)
    words = [sys.executable, "-m", "hpcflow.cli.main", "daemon", "--interval", "1"]
    log = desk.folder / "daemon.log"
    with log.open("wb") as file:
        loop = subprocess.Popen(words, stdout=file, stderr=file, env=os.environ)
    poll(lambda: log.read_text().count("go_on") == 2, 120, log.read_text)
    loop.send_signal(signal.SIGTERM)
    assert loop.wait(120) == 0
    assert log.read_text().count(f"warning: {spoiled['run_id']}") == 1, (
        "it was looked at in three rounds"
    )
