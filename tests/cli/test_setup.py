"""`hpcflow setup`, typed once by a new user; on a real cluster: tests/e2e/test_setup.py."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow.storage.code_snapshot import MAX_BYTES
from tests.cli.desk import Desk
from tests.cli.test_daemon_install import CRONTAB, FORBIDDEN, NO_BUS, Machine
from tests.daemons import daemon
from tests.provenance.test_git import git


@pytest.fixture
def machine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without Slurm, where cron is allowed."""
    machine = Machine(desk.folder / "bin")
    machine.has("crontab", CRONTAB)
    machine.has("systemctl", NO_BUS)
    monkeypatch.setenv("PATH", f"{machine.folder}{os.pathsep}{os.environ['PATH']}")
    return machine


def test_one_command_checks_installs_and_tries(desk: Desk, machine: Machine, home: Path) -> None:
    said = desk.say("setup", "--yes")
    titles = ["the cluster", "this machine", "the daemon", "a trial"]
    assert [line for line in said.splitlines() if line in titles] == titles
    assert "this machine belongs to site local: " in said
    assert "accepted, partition local" in said
    assert b"daemon --once" in machine.table
    assert said.endswith("check your own config next: hpcflow run CONFIG --dry-run\n")
    assert desk.json("show", "trial")["state"] == "completed"
    assert "print('hello" in (home / "trial/trial.yaml").read_text()
    table = machine.table
    assert "a daemon is installed, and has not run yet" in desk.say("setup", "--yes")
    assert machine.table == table


def test_a_home_in_a_repository_of_dotfiles_is_no_code(
    desk: Desk, machine: Machine, home: Path
) -> None:
    git(home.parent, "init", "-q")
    git(home.parent, "commit", "-q", "--allow-empty", "-m", "dotfiles")
    with (home.parent / "large").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert "the trial is completed" in desk.say("setup", "--yes")
    assert b"daemon --once" in machine.table


def test_a_daemon_that_lives_needs_none_beside_it(desk: Desk, machine: Machine) -> None:
    daemon()
    assert "a daemon supervises your runs: " in desk.say("setup", "--yes")
    assert machine.table == b""


def test_what_is_wrong_stops_it_before_anything_is_installed(
    desk: Desk, machine: Machine, home: Path
) -> None:
    home.mkdir()
    (home / "ledger.sqlite").write_text("no database " * 100)
    said = desk.say("setup", "--yes", code=1)
    assert said.endswith("correct the errors, then run it again: hpcflow setup\n")
    assert machine.table == b""


def test_where_the_daemon_cannot_be_installed_the_trial_is_sent_all_the_same(
    desk: Desk, machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert desk.code("setup", "--yes", "--", "gpu") == 0
    said = capfd.readouterr()
    assert "the trial is completed" in said.out
    assert "warning: --cron submits no job" in said.err
    assert machine.table == b""


def test_at_a_terminal_it_asks_before_each_step(desk: Desk, machine: Machine) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "hpcflow.cli.main", "setup"]
    with subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, b"n\nn\n")
        said = process.communicate(timeout=240)[0]
    for descriptor in (ours, theirs):
        os.close(descriptor)
    assert process.returncode == 0, said
    assert "Write it?" in said
    assert "Submit a job of at most 2 minutes (hpcflow run " in said
    assert machine.table == b""
    assert desk.json("ls")["runs"] == []


def test_a_cluster_without_a_site_file_gets_one(
    desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """Slurm's answers are recorded ones, of a cluster that nobody has described yet."""
    monkeypatch.delenv("HPCFLOW_SITE")
    recorded = Path(__file__).parents[1] / "recorded/22.05.8"
    config = (recorded / "config.txt").read_text().replace("devcluster", "alps")
    (machine.folder / "config").write_text(config)
    machine.has(
        "scontrol",
        '#!/bin/sh\ncase "$2" in\n'
        '  config) cat "$(dirname "$0")/config" ;;\n'
        f'  partition) cat "{recorded}/partitions.txt" ;;\n'
        "esac\n",
    )
    machine.has("sinfo", f'#!/bin/sh\ncat "{recorded}/sinfo.txt"\n')
    for name in ("sbatch", "squeue", "sacct", "sacctmgr", "scancel", "sshare"):
        machine.has(name, FORBIDDEN)
    said = desk.say("setup", "--yes", code=1)
    written = home / "sites/alps.yaml"
    assert f"wrote {written}; read its comments\n" in said
    assert f"this machine belongs to site alps: {written}\n" in said
    assert "cluster_name: alps" in written.read_text()
    assert said.endswith("then run it again: hpcflow setup\n"), "this sbatch takes no job"
    assert machine.table == b""


def test_without_a_terminal_it_asks_for_the_flag(desk: Desk, machine: Machine) -> None:
    assert "hpcflow setup --yes" in desk.error("setup")
    assert machine.table == b""
