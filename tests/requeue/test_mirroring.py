"""The mirror beside the daemon: one at a time, never in its way, and it ends with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from hpcflow.clock import Clock, SystemClock
from hpcflow.requeue.mirroring import Mirroring
from hpcflow.settings import Settings, load_settings
from hpcflow.sites.schema import Site
from tests.cluster_fixture import poll
from tests.mirror.runs import Desk, desk_in, save
from tests.schedulers.programs import arguments, install
from tests.sites import build


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = desk_in(tmp_path, str(tmp_path / "store"))
    desk.home.path.mkdir(mode=0o700)
    return desk


def settings_of(desk: Desk) -> Settings:
    return load_settings({**os.environ, "HPCFLOW_HOME": str(desk.home.path)})


def beside(
    desk: Desk, said: list[str] | None = None, clock: Clock | None = None, site: Site | None = None
) -> Mirroring:
    """The mirror beside a daemon on a machine of ``site``."""
    here = site or build.site(build.minimal("here"))
    say = print if said is None else said.append
    return Mirroring(settings_of(desk), clock or SystemClock(), say, lambda _name: here)


def has_ended(mirroring: Mirroring) -> bool:
    """Whether the pass that was begun has ended, and the daemon knows."""
    mirroring.tend()
    return mirroring._process is None


def is_at_work(mirroring: Mirroring) -> bool:
    mirroring.tend()
    return mirroring._process is not None


class Ahead(SystemClock):
    """Time that the test can let pass."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


def test_what_is_due_is_sent_a_minute_apart(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    clock, said = Ahead(), list[str]()
    mirroring = beside(desk, said, clock)
    mirroring.tend()
    poll(lambda: "manifest.json" in " ".join(desk.there(run_dir)), 120, "it was sent")
    save(run_dir, 500)
    poll(partial(has_ended, mirroring), 120, "it has ended")
    mirroring.tend()
    assert mirroring._process is None
    clock.ahead_s += 61
    mirroring.tend()
    poll(lambda: "000000500/manifest.json" in " ".join(desk.there(run_dir)), 120, "so was that")
    mirroring.close()
    assert said == []


def test_nothing_is_started_where_no_run_has_a_mirror(desk: Desk) -> None:
    mirroring = beside(desk)
    mirroring.tend()
    assert mirroring._process is None


def test_trouble_is_said_once(desk: Desk) -> None:
    run_dir = desk.make(url="nosuch://bucket")
    save(run_dir, 400)
    clock, said = Ahead(), list[str]()
    mirroring = beside(desk, said, clock)
    for _ in range(2):
        mirroring.tend()
        poll(partial(has_ended, mirroring), 120, "it has ended")
        clock.ahead_s += 61
    (text,) = said
    assert text.startswith("mirror: nosuch://bucket")


PARENT = """
import sys, time
from hpcflow.cli.session import Session
from hpcflow.clock import SystemClock
from hpcflow.requeue.mirroring import Mirroring
from hpcflow.settings import load_settings
mirroring = Mirroring(load_settings(), SystemClock(), print, Session().site)
mirroring.tend()
print(mirroring._process.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_when_the_daemon_is_killed(desk: Desk) -> None:
    run_dir = desk.make(bandwidth_bytes_s=1)  # so slow that it does not end by itself
    save(run_dir, 400)
    environ = {**os.environ, "HPCFLOW_HOME": str(desk.home.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], env=environ, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    poll(lambda: run_dir.mirror_lock.exists(), 120, "it is at work")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    poll(lambda: not Path(f"/proc/{pid}").exists(), 120, "it has ended")


def test_a_run_whose_directory_was_away_at_first_is_mirrored_when_it_is_back(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    away = run_dir.path.rename(desk.folder / "away")
    mirroring = beside(desk)
    mirroring.tend()
    assert mirroring._process is None
    away.rename(run_dir.path)
    poll(partial(is_at_work, mirroring), 120, "it never looked again")
    mirroring.close()


def test_runs_that_are_gone_keep_no_other_from_being_seen(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcflow.requeue.mirroring._NEW_RUNS", 2)
    for number in range(3):
        shutil.rmtree(desk.make(f"a{number}").path)
    desk.make("b")
    mirroring = beside(desk)
    poll(partial(is_at_work, mirroring), 120, "it never came to the last one")
    mirroring.close()


TRANSFER = "mirror: {url: s3://bucket/runs, partition: %s}\ndefault_account: lab\n"


def test_the_site_of_today_says_where_the_job_goes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The partition that a run was frozen with may be gone, or be another cluster's."""
    desk.make(partition="old")
    install(monkeypatch, tmp_path, "squeue")
    sent = install(monkeypatch, tmp_path, "sbatch", stdout="7\n")
    said: list[str] = []
    site = build.site(build.minimal("here", TRANSFER % "transfer"))
    beside(desk, said, site=site).tend()
    assert {"--partition=transfer", "--account=lab"} < set(arguments(sent))
    assert said == []


def test_where_the_site_names_no_partition_any_more_it_is_beside_the_daemon(desk: Desk) -> None:
    desk.make(partition="old")
    mirroring = beside(desk)
    mirroring.tend()
    assert mirroring._process is not None
    mirroring.close()
