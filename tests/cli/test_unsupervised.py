"""A run that waits for good without a daemon: every command says so, once, and what to type."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.main import main
from hpcflow.cli.session import Session
from hpcflow.clock import SystemClock
from hpcflow.model.state import AttemptState
from hpcflow.requeue.install.place import place_of
from hpcflow.schedulers.base import JobInfo
from hpcflow.settings import load_settings
from hpcflow.sites.schema import Site
from hpcflow.testing.clock import FakeClock
from tests.cli.cluster import ClusterDesk
from tests.cli.desk import Desk
from tests.cli.test_daemon_install import CRONTAB, FORBIDDEN, NO_BUS, Machine
from tests.daemons import daemon

NONE = "no daemon supervises your runs"
INSTALL = "→ install one: hpcflow daemon install\n"
SPOT = "resources: {partition: spot, account: physics, time_limit: 10m}\n"
NORMAL = "resources: {partition: gpu, account: physics, time_limit: 10m}\n"


@pytest.fixture
def cluster(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> ClusterDesk:
    """A person on a cluster, whose crontab is empty."""
    machine = Machine(desk.folder / "bin")
    machine.has("crontab", CRONTAB)
    machine.has("scrontab", FORBIDDEN)
    machine.has("systemctl", NO_BUS)
    monkeypatch.setenv("PATH", f"{machine.folder}{os.pathsep}{os.environ['PATH']}")
    return ClusterDesk.at(desk, monkeypatch)


def config(desk: Desk, more: str = SPOT, name: str = "digits") -> str:
    path = Path(desk.config(name, "true"))
    path.write_text(path.read_text() + more)
    return str(path)


def warned(desk: Desk, *args: str) -> int:
    """How often a command says that a daemon is missing."""
    said = desk.error(*args, code=0)
    assert said.count(NONE) == said.count(INSTALL)
    return said.count(NONE)


def preempted(cluster: ClusterDesk, more: str = SPOT) -> str:
    run_id = str(cluster.json("run", config(cluster, more))["run_id"])
    (job,) = cluster.slurm.queue()
    cluster.slurm.start(job.job_id)
    cluster.slurm.end(job.job_id, "PREEMPTED")
    return run_id


def lived(ago: timedelta = timedelta(), *, once: bool = False, **who: Any) -> None:
    """A daemon took the lease, so long ago, and gave it back if it made one round."""
    clock = FakeClock(SystemClock().now() - ago)
    lease = daemon(clock=clock, **who)
    if once:
        lease.give_back()
    else:
        clock.advance(10)
        assert lease.take()


def test_a_run_that_may_be_preempted_says_that_no_daemon_resubmits_it(cluster: ClusterDesk) -> None:
    assert warned(cluster, "run", config(cluster)) == 1
    assert warned(cluster, "ls") == 1
    assert warned(cluster, "show", "digits") == 1
    assert [run["is_unsupervised"] for run in cluster.json("ls")["runs"]] == [True]
    assert cluster.json("show", "digits")["is_unsupervised"] is True
    assert NONE not in cluster.error("ls", "--json", code=0), "scripts have the field"


def test_many_such_runs_are_said_once(cluster: ClusterDesk) -> None:
    for name in ("first", "second"):
        cluster.say("run", config(cluster, name=name))
    assert warned(cluster, "ls") == 1


def test_looking_for_a_daemon_imports_nothing_that_submits(cluster: ClusterDesk) -> None:
    cluster.say("run", config(cluster))
    cluster.json("ls")
    code = (
        "import sys; from hpcflow.cli.session import Session; session = Session();"
        "found = session.unsupervised(session.ledger.runs());"
        "session.warn_of_missing_daemon(found);"
        "print(len(found), [m for m in ('jinja2', 'hpcflow.model.spec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert NONE in done.stderr
    assert done.stdout == "1 []\n"


def test_for_more_such_runs_the_site_file_is_not_read_more_often(
    cluster: ClusterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str | None] = []
    find = Session.site

    def counted(session: Session, name: str | None, **more: Any) -> Site:
        read.append(name)
        return find(session, name, **more)

    def read_by_ls() -> int:
        cluster.json("run", config(cluster))
        read.clear()
        assert warned(cluster, "ls") == 1
        return len(read)

    monkeypatch.setattr(Session, "site", counted)
    assert read_by_ls() == read_by_ls()


def test_a_run_that_waits_says_it_also_where_nothing_is_preempted(cluster: ClusterDesk) -> None:
    preempted(cluster, NORMAL)
    assert cluster.json("ls")["runs"][0]["state"] == "waiting"
    assert warned(cluster, "ls") == 1
    assert warned(cluster, "show", "digits") == 1
    cluster.say("hold", "digits")
    assert warned(cluster, "ls") == 0, "nobody wants it to go on"


def test_whoever_follows_a_run_to_its_preemption_is_told_once(
    cluster: ClusterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = cluster.slurm.queue

    def preempts() -> list[JobInfo]:
        for job in queue():
            if job.state is not AttemptState.ENDED:
                cluster.slurm.start(job.job_id)
                cluster.slurm.end(job.job_id, "PREEMPTED")
        return queue()

    monkeypatch.setattr(cluster.slurm, "queue", preempts)
    said = cluster.error("run", config(cluster), "--follow", code=1)
    assert (said.count(NONE), said.count(INSTALL)) == (1, 1)
    assert cluster.json("wait", "digits", code=1)["is_unsupervised"] is True


@pytest.mark.parametrize("more", [NORMAL, SPOT + "retry: {preemptions: 0}\n"])
def test_nothing_is_said_of_a_run_that_needs_none(cluster: ClusterDesk, more: str) -> None:
    assert warned(cluster, "run", config(cluster, more)) == 0
    assert warned(cluster, "ls") == 0
    assert cluster.json("show", "digits")["is_unsupervised"] is False


def test_nothing_is_said_of_a_run_that_is_over(cluster: ClusterDesk) -> None:
    cluster.say("run", config(cluster))
    cluster.say("cancel", "digits")
    assert warned(cluster, "ls") == 0


@pytest.mark.parametrize(
    ("lives", "count"),
    [
        (lived, 0),
        (lambda: lived(timedelta(minutes=10)), 1),
        (lambda: lived(timedelta(minutes=10), once=True), 0),  # cron, of any login node
        (lambda: lived(timedelta(hours=1), once=True), 1),
        (lambda: lived(pid=2**22 + 1, host=os.uname().nodename), 1),  # kill -9
    ],
    ids=["alive", "silent", "rounds", "no more rounds", "killed"],
)
def test_a_daemon_that_lives_is_seen(
    cluster: ClusterDesk, lives: Callable[[], None], count: int
) -> None:
    lives()
    assert warned(cluster, "run", config(cluster)) == count
    assert warned(cluster, "ls") == count


def test_installed_it_is_trusted_until_its_rounds_fail_to_come(cluster: ClusterDesk) -> None:
    run_id = preempted(cluster)
    assert "* * * * * " in cluster.say("daemon", "install", "--yes"), "cron is what it may have"
    assert warned(cluster, "ls") == 0, "its first round is still to come"
    log = place_of(load_settings()).log
    os.utime(log, (0, 0))
    said = cluster.error("ls", code=0)
    assert "the daemon is installed (a line in the crontab of " in said
    assert ") and has run no round yet, so no run is resubmitted" in said
    assert f"→ see why: tail {log}; hpcflow daemon status\n" in said
    assert main(["daemon", "--once"]) == 0
    assert warned(cluster, "ls") == 0
    assert cluster.json("show", run_id)["attempts"][-1]["attempt"] == 2


def test_a_round_by_hand_is_no_promise(cluster: ClusterDesk) -> None:
    run_id = preempted(cluster)
    cluster.say("daemon", "--once")
    assert cluster.json("show", run_id)["attempts"][-1]["attempt"] == 2
    assert warned(cluster, "ls") == 1


def test_without_any_way_the_installation_says_why_of_each(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(desk.folder / "bin")
    machine.has("crontab", FORBIDDEN)
    monkeypatch.setenv("PATH", str(machine.folder))
    said = desk.error("daemon", "install")
    assert "--systemd: no systemctl on this machine" in said
    assert "--cron: cannot read your table with crontab: You (ada) are not allowed" in said
    assert "--scrontab: " in said
    assert "--slurm: " in said
    assert said.endswith("start it in tmux: hpcflow daemon\n")
