"""Kills ``hpcflow daemon`` at every boundary, or at random moments under load.

``python -m tests.requeue.kill_driver boundaries FOLDER ONE_IN``, or ``moments FOLDER KILLS SEED``.
It is a program of its own because it forks: a child that has everything imported is a daemon at
once, so that hundreds can live and die in a minute. Prints one JSON object at its end.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import hpcflow.cli.control.daemon
import hpcflow.cli.submit.run
import hpcflow.launch.resubmit
import hpcflow.ledger.derive
import hpcflow.ledger.lease
import hpcflow.reconcile.attempts
import hpcflow.reconcile.refresh
import hpcflow.requeue.daemon.loop
import hpcflow.requeue.tick
from hpcflow.cli.main import main
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.store import open_ledger
from hpcflow.projection import catch_up, check
from hpcflow.requeue import facts
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.storage import journal
from hpcflow.storage.layout import Home
from hpcflow.storage.runs import list_runs
from hpcflow.testing.stand_in import Job, StandIn, assert_exactly_once, pass_five_minutes

CONFIG = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m, account: physics}
retry: {backoff: 1s, backoff_max: 1s, node_failures: 1000, failures: 1000}
"""
CAUSES = {"PREEMPTED": "preempted", "TIMEOUT": "timeout", "NODE_FAIL": "node_fail",
          "FAILED": "failed", "COMPLETED": "completed"}  # fmt: skip
#: How jobs end, and how often.
_ENDS = ["PREEMPTED"] * 6 + ["TIMEOUT"] * 2 + ["NODE_FAIL", "FAILED"]


class World:
    """A cluster, a home, runs; and what the test did to them."""

    def __init__(self, folder: Path, **slurm: float) -> None:
        self.slurm = StandIn(folder / "slurm", **slurm)
        self.home = Home(folder / "home")
        self.log = folder / "log"
        self.config = folder / "config.yaml"
        self.config.write_text(CONFIG)
        self.ends: dict[str, str] = {}
        facts.__dict__["_DELAY_S"] = 0.05  # what was withdrawn is sent again that soon
        os.environ.clear()
        os.environ.update(self.slurm.environment(self.home.path, folder / "scratch"))

    def fork(self, function: Callable[[], int]) -> int:
        """Start ``function`` in a process of its own; its id."""
        pid = os.fork()
        if pid:
            return pid
        out = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 1
        try:
            code = function()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def send_new(self) -> int:
        """``hpcflow run``."""
        return main(["run", str(self.config), "--site", "devcluster"])

    def whole_round(self) -> None:
        """``hpcflow daemon --once``, five minutes later, that nobody kills."""
        pass_five_minutes(self.home)
        pid = self.fork(lambda: main(["daemon", "--once"]))
        assert wait(pid) == 0, self.log.read_text()[-2000:]

    def start_all(self) -> None:
        """What waits, runs."""
        for job in self.slurm.alive():
            if not job.has_started:
                assert self.slurm.start(job, self.home), f"{job} found its attempt claimed"

    def something_happens(self, dice: random.Random) -> bool:
        """A job starts or ends, or is forgotten by the queue; False where there is none."""
        jobs = self.slurm.jobs()
        over = [job for job in jobs if job.is_over and job.is_remembered]
        if over and dice.random() < 0.1:
            self.slurm.forget(dice.choice(over))
        alive = [job for job in jobs if not job.is_over]
        if not alive:
            return False
        job = dice.choice(alive)
        if not job.has_started:
            assert self.slurm.start(job, self.home), f"{job} found its attempt claimed"
        elif job.attempt > 8 and dice.random() < 0.3:
            self.end(job, "COMPLETED")
        else:
            self.end(job, dice.choice(_ENDS))
        return True

    def states(self) -> list[str]:
        """The states of all runs, as the daemon has left them in the ledger."""
        with sqlite3.connect(self.home.ledger, timeout=120) as raw:
            rows = raw.execute("SELECT state FROM run").fetchall()
        raw.close()
        return [state for (state,) in rows]

    def end(self, job: Job, state: str) -> None:
        """It has made a checkpoint, further on than the attempt before."""
        self.ends[job.name] = CAUSES[state]
        code = 1 if state == "FAILED" else 0
        self.slurm.end(job, self.home, state, exit_code=code, checkpoint=100 * job.attempt)

    def verdict(self) -> dict[str, Any]:
        """What ledger, files and the cluster's own book say; raises where they disagree."""
        jobs = self.slurm.jobs()
        assert_exactly_once(jobs)
        run_dirs = list_runs(self.home)
        with open_ledger(f"sqlite:///{self.home.ledger}") as ledger:
            catch_up(ledger, run_dirs)
            assert check(ledger, run_dirs) == []
            runs = [ledger.run(run_dir.path.name) for run_dir in run_dirs]
        attempts = {
            f"{seen.run.run_id}:{attempt.attempt}": attempt
            for seen in runs
            for attempt in seen.attempts
        }
        known = {name: attempt for name, attempt in attempts.items() if attempt.job_id is not None}
        assert {name: each.job_id for name, each in known.items()} == {
            job.name: job.job_id for job in jobs
        }, "jobs without an attempt, or attempts without their job"
        causes = {name: each.cause.value for name, each in known.items() if each.cause}
        assert causes == self.ends
        return {
            "runs": {seen.run.run_id: seen.run.state.value for seen in runs},
            "jobs": len(jobs),
            "withdrawn": len(attempts) - len(known),
            "requests": self.slurm.requests(),
            "log": self.log.read_text()[-20_000:],
        }


def wait(pid: int) -> int:
    """The exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(number: int, log: Path) -> None:
    """From now on this process is killed at its ``number``-th moment: before whatever makes a fact
    last, or asks the ledger, and around the start of a program."""
    moments = 0

    def moment(what: str) -> None:
        nonlocal moments
        moments += 1
        if moments == number:
            with log.open("a") as file:
                file.write(f"killed {what}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def around(function: Callable[..., Any], name: str, *, after: bool) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            said = next((each for each in args[:2] if isinstance(each, str)), "")
            moment(f"before {name} {said[:40]}".strip())
            result = function(*args, **options)
            if after:
                moment(f"after {name}")
            return result

        return wrapped

    for name in ("fsync", "replace", "rename"):
        setattr(os, name, around(getattr(os, name), name, after=False))
    for name in ("execute", "execute_many"):
        setattr(Connection, name, around(getattr(Connection, name), "sql", after=False))
    start = subprocess.Popen.__init__
    program = around(start, "starting a program", after=True)
    subprocess.Popen.__init__ = program  # type: ignore[method-assign]


def at_boundaries(folder: Path, one_in: int) -> dict[str, Any]:
    """Each round kills the daemon ``one_in`` moments later, while it sends a run again."""
    world = World(folder, sbatch_s=0.02, slow=0.15)
    # Bills come some seconds after an end, in whichever round: then no two would have the same
    # moments. Kills while they are written are among those at random moments.
    hpcflow.ledger.derive.LAGS = timedelta(days=1)
    moments = folder / "moments"
    assert wait(world.fork(world.send_new)) == 0
    once = ["daemon", "--once"]
    world.whole_round()
    number, code = random.randrange(one_in) + 1 - one_in, -9
    while code == -9:
        number += one_in
        world.start_all()
        (job,) = world.slurm.alive()
        world.end(job, "PREEMPTED")

        def doomed(number: int = number) -> int:
            killed_at(number, moments)
            return main(once)

        code = wait(world.fork(doomed))
        give_up = time.monotonic() + 120
        world.whole_round()
        # An orphaned sbatch may take a while; whoever holds the lock is let be.
        while not world.slurm.alive() or world.states() != ["queued"]:
            assert time.monotonic() < give_up, f"killed at moment {number}, {world.states()}"
            world.whole_round()
        assert len(world.slurm.alive()) == 1, f"killed at moment {number}"
    world.start_all()
    (job,) = world.slurm.alive()
    world.end(job, "COMPLETED")
    world.whole_round()
    return {"moments": moments.read_text().splitlines(), "code": code, **world.verdict()}


class Phase:
    """What a forked daemon is at, where its parent can see it after the kill."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)

    def watch(self) -> None:
        """In the child: say so from now on."""
        for letter, module, name in _PHASES:
            setattr(module, name, self._within(letter, getattr(module, name)))

    def was(self) -> str:
        """What it was at; forgets it."""
        letter, self._shared[0] = self._shared[0], 0
        return next((name for each, _, name in _PHASES if ord(each) == letter), "between")

    def is_at(self, name: str) -> bool:
        """Whether it is in that function now."""
        return any(ord(each) == self._shared[0] for each, _, other in _PHASES if other == name)

    def _within(self, letter: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            before, self._shared[0] = self._shared[0], ord(letter)
            result = function(*args, **options)
            self._shared[0] = before
            return result

        return wrapped


#: Letter, and the function that a daemon is in.
_PHASES = (
    ("l", hpcflow.requeue.daemon.loop, "acquire"),
    ("h", hpcflow.reconcile.refresh, "catch_up_home"),
    ("o", hpcflow.reconcile.attempts, "reconcile_attempts"),
    ("c", hpcflow.requeue.tick, "catch_up"),
    ("d", journal, "append_all"),
    ("s", SlurmCommands, "submit"),
    ("r", hpcflow.requeue.tick, "resubmit"),
)
_AIMS = ("catch_up_home", "reconcile_attempts", "submit")


def at_moments(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill a daemon ``kills`` times, each after up to 0.3 s, while jobs end and new runs come.

    Every eighth is killed as soon as it is in a certain function, however slow the machine is.
    """
    dice = random.Random(seed)
    world, phase = World(folder, sbatch_s=0.02, slow=0.15, lost_answers=0.05), Phase()
    found: Counter[str] = Counter()
    newcomers: list[int] = []
    command = ["daemon", "--interval", "1"]
    world.whole_round()

    def daemon() -> int:
        phase.watch()
        return main(command)

    for number in range(kills):
        if number % 8 == 0:
            newcomers.append(world.fork(world.send_new))
        pid = world.fork(daemon)
        aim = _AIMS[number // 8 % len(_AIMS)] if number % 8 == 0 else ""
        until = time.monotonic() + (20 if aim else dice.uniform(0, 0.3))
        while (left := until - time.monotonic()) > 0 and not phase.is_at(aim):
            if not world.something_happens(dice):
                time.sleep(min(left, 0.005))
        os.kill(pid, signal.SIGKILL)
        assert wait(pid) == -signal.SIGKILL, world.log.read_text()[-2000:]
        found[phase.was()] += 1
        pass_five_minutes(world.home)
    for newcomer in newcomers:
        assert wait(newcomer) == 0, world.log.read_text()[-2000:]
    pid = world.fork(daemon)
    give_up = time.monotonic() + 120
    while (states := set(world.states())) != {"completed"}:
        assert time.monotonic() < give_up, f"{states}\n{world.log.read_text()[-4000:]}"
        world.start_all()
        for job in world.slurm.alive():
            world.end(job, "COMPLETED")
        time.sleep(0.05)
    os.kill(pid, signal.SIGTERM)
    assert wait(pid) == 0
    return {"killed": found, **world.verdict()}


if __name__ == "__main__":
    mode, where, *rest = sys.argv[1:]
    if mode == "boundaries":
        print(json.dumps(at_boundaries(Path(where), int(*rest))))
    else:
        print(json.dumps(at_moments(Path(where), *map(int, rest))))
