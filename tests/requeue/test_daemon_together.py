"""Several real daemons of one user: one acts, the others wait; who was only asleep acts no more.

They are processes of ``hpcflow daemon``, on a cluster that many processes share (stand_in.py); each
submission is kept there with the process that sent it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.cli.main import main
from hpcflow.launch.run import submit
from hpcflow.ledger.store import open_ledger
from hpcflow.requeue.daemon.home_lease import look
from hpcflow.settings import load_settings
from hpcflow.storage.layout import Home
from hpcflow.testing.cluster import poll
from hpcflow.testing.stand_in import Job, StandIn, assert_exactly_once, pass_five_minutes

CONFIG = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m, account: physics}
"""
RUNS = 3


class Site:
    """A cluster, a home, and the daemons that somebody has started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slurm = StandIn(folder / "slurm")
        self.home = Home(folder / "home")
        self.config = folder / "config.yaml"
        self.daemons: dict[int, subprocess.Popen[bytes]] = {}

    def submit(self, count: int) -> None:
        for _ in range(count):
            submit(self.config, site="devcluster")

    def start_daemon(self, log: Path | None = None, *, ledger: Path | None = None) -> int:
        argv = [sys.executable, "-m", "hpcflow.cli.main", "daemon", "--interval", "1"]
        log = log or self.folder / f"daemon-{len(self.daemons)}.log"
        other = {} if ledger is None else {"HPCFLOW_LEDGER": f"sqlite:///{ledger}"}
        with log.open("wb") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **other})
        self.daemons[process.pid] = process
        return process.pid

    def said(self, pid: int) -> str:
        return (self.folder / f"daemon-{list(self.daemons).index(pid)}.log").read_text()

    def acting(self) -> int:
        """The process that has the lease."""
        lease = look(load_settings())
        return lease.pid if lease else 0

    def preempt_all(self) -> int:
        """Every job starts, saves and is preempted; how many."""
        jobs = self.slurm.alive()
        for job in jobs:
            assert self.slurm.start(job, self.home), "two jobs of one attempt"
            self.slurm.end(job, self.home, "PREEMPTED", checkpoint=100 * job.attempt)
        return len(jobs)

    def all_sent_again(self) -> list[Job]:
        """Preempt all, and wait for their new jobs."""
        last, count = self.slurm.jobs()[-1], self.preempt_all()
        poll(lambda: len(self.sent_since(last)) == count, 120, "they are not sent again")
        return self.sent_since(last)

    def sent_since(self, job: Job) -> list[Job]:
        return [
            each for each in self.slurm.jobs() if job is None or int(each.job_id) > int(job.job_id)
        ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    tmp_path.chmod(0o700)
    site = Site(tmp_path)
    for name, value in site.slurm.environment(site.home.path, tmp_path / "scratch").items():
        monkeypatch.setenv(name, value)
    for name in ("HPCFLOW_SITE", "HPCFLOW_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    site.config.write_text(CONFIG)
    site.submit(RUNS)
    open_ledger(load_settings().ledger_url).close()
    yield site
    for process in site.daemons.values():
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@pytest.mark.parametrize("count", [2, 3])
def test_one_acts_and_when_it_is_killed_another_one_does(site: Site, count: int) -> None:
    for _ in range(count):
        site.start_daemon()
    poll(lambda: sum("waiting" in site.said(pid) for pid in site.daemons) == count - 1, 60,
         "more than one acts, or none")  # fmt: skip
    actors = []
    for _ in range(2):
        senders = {job.sender for job in site.all_sent_again()}
        acting = site.acting()  # before, another may have had one of its two leases
        assert senders == {acting}
        actors.append(acting)
        os.kill(acting, signal.SIGKILL)
        site.daemons[acting].wait()
        pass_five_minutes(site.home)
        if len(actors) < count:
            poll(lambda: site.acting() not in actors, 120, "nobody takes over")
    assert len(set(actors)) == 2
    assert_exactly_once(site.slurm.jobs())
    assert len(site.slurm.jobs()) == 3 * RUNS
    for pid, process in site.daemons.items():
        if pid not in actors:
            process.terminate()
            assert process.wait(120) == 0
            assert "Traceback" not in site.said(pid)


def test_one_acts_after_the_ledger_was_changed(site: Site) -> None:
    """``ledger:`` in config.yaml is edited while a daemon runs, and another one is started."""
    first = site.start_daemon()
    poll(lambda: site.acting() == first, 60, lambda: site.said(first))
    second = site.start_daemon(ledger=site.folder / "other.sqlite")
    poll(lambda: f"process {first} on " in site.said(second), 60, lambda: site.said(second))
    assert {job.sender for job in site.all_sent_again()} == {first}
    os.kill(first, signal.SIGKILL)
    site.daemons[first].wait()
    pass_five_minutes(site.home)
    poll(lambda: site.acting() == second, 120, lambda: site.said(second))
    assert {job.sender for job in site.all_sent_again()} == {second}
    assert_exactly_once(site.slurm.jobs())


def test_whoever_was_stopped_and_wakes_up_acts_no_more(site: Site) -> None:
    """SIGSTOP in the middle of a round: a machine that was suspended, a login node that hangs."""
    site.submit(RUNS)
    for _ in range(2):
        site.start_daemon()
    poll(lambda: any("waiting" in site.said(pid) for pid in site.daemons), 120, "none waits")
    sleeper = site.acting()
    (other,) = set(site.daemons) - {sleeper}
    first = site.slurm.jobs()[-1]
    site.slurm.set(sbatch_s=0.3)
    site.preempt_all()
    poll(lambda: bool(site.sent_since(first)), 120, "nothing is sent")
    os.kill(sleeper, signal.SIGSTOP)
    pass_five_minutes(site.home)
    poll(lambda: site.slurm.jobs()[-1].sender == other, 120, "the other one does not go on")
    awake = site.slurm.jobs()[-1]
    os.kill(sleeper, signal.SIGCONT)
    poll(lambda: len(site.sent_since(first)) == 2 * RUNS, 120, "they are not all sent again")
    assert site.sent_since(awake), "nothing was left to do when it woke up"
    # One run was in its hands: it has the lock of that, and sends it before it looks again.
    assert [job.sender for job in site.sent_since(awake)].count(sleeper) <= 1
    poll(lambda: "taken over" in site.said(sleeper), 120, "it does not say so")
    site.slurm.set(sbatch_s=0)
    assert {job.sender for job in site.all_sent_again()} == {other}
    assert_exactly_once(site.slurm.jobs())


def held_up_in_squeue(site: Site, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
    """A daemon in the middle of a round, and the file that squeue waits for."""
    squeue, asked, go = (site.slurm.folder / name for name in ("squeue", "asked", "go"))
    real = squeue.rename(site.slurm.folder / "real_squeue")
    squeue.write_text(
        f'#!/bin/sh\ntouch {asked}\nwhile test ! -e {go}; do sleep 0.05; done\nexec {real} "$@"\n'
    )
    squeue.chmod(0o755)
    # Whoever runs the tests may have begun them with nohup.
    argv = ["env", "--default-signal=HUP", *words[:-1], sys.executable, "-m", "hpcflow.cli.main"]
    process = subprocess.Popen([*argv, "daemon", words[-1]])
    site.daemons[process.pid] = process
    poll(asked.exists, 120, "it does not ask")
    return process, go


@pytest.mark.parametrize("how", ["--once", "--interval=1"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_whoever_is_told_to_end_in_a_round_leaves_the_lease_to_the_next_one(
    site: Site, how: str, number: signal.Signals
) -> None:
    """cron's round in a machine that goes down, a terminal that is closed."""
    assert site.preempt_all() == RUNS
    process, go = held_up_in_squeue(site, how)
    process.send_signal(number)
    go.touch()
    assert process.wait(120) == 0
    assert site.slurm.alive() == [], "told to end, it acts no more"
    assert main(["daemon", "--once"]) == 0
    assert len(site.slurm.alive()) == RUNS


def test_a_terminal_that_is_closed_does_not_end_what_nohup_has_started(site: Site) -> None:
    assert site.preempt_all() == RUNS
    process, go = held_up_in_squeue(site, "nohup", "--once")
    process.send_signal(signal.SIGHUP)
    go.touch()
    assert process.wait(120) == 0
    assert len(site.slurm.alive()) == RUNS


def test_a_log_that_cannot_be_written_ends_no_daemon(site: Site) -> None:
    """``hpcflow daemon > $SCRATCH/log``, and scratch is full."""
    site.start_daemon(Path("/dev/full"))
    for _ in range(2):
        assert len(site.all_sent_again()) == RUNS
    (process,) = site.daemons.values()
    assert process.poll() is None
