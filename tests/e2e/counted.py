"""Runs that count their own executions, so that none can be lost or doubled unseen.

The program is counted_program.py: it needs no torch, trains until it is told to end, and leaves
hard evidence in its run directory. A test starts some, lets something go wrong, tells them to
finish, and counts::

    with watch(hpcflow) as daemon:
        runs = [start(hpcflow), start(hpcflow)]
        for run in runs: run.wait_training()
        ...                                     # the fault
        complete(hpcflow, runs)
    assert_counted(hpcflow, cluster, runs)
"""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import Decided, Ended, Intended, JournalRecord, Submitted
from hpcflow.storage import journal
from hpcflow.storage.layout import Home, RunDir
from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow

#: A train step is 0.05 s, a checkpoint five of them.
CHECKPOINT_EVERY = 5
#: Options for :func:`start`: it saves on notice only.
NEVER_SAVES = ("--set", "checkpoint.every_train_steps=null", "--set", "checkpoint.interval=never")

_PROGRAM = Path(__file__).with_name("counted_program.py")
_HURRIED = Path(__file__).with_name("hurried.py")
_CONFIG = f"""
name: counted
command: [python3, {{program}}]
launch: {{{{framework: none, launcher: srun}}}}
resources: {{{{partition: spot, cpus_per_task: 1, mem: 200M, time_limit: 10m}}}}
checkpoint: {{{{every_train_steps: {CHECKPOINT_EVERY}}}}}
retry: {{{{backoff: 1s}}}}
"""


@dataclass(frozen=True)
class Execution:
    """One time that the program of a run was started, as it said so itself.

    Attributes:
        restarts: Slurm's count of restarts of this job.
        began_at: the train step that it resumed from.
        reached: the last train step that it did.
        has_ended: whether it came to its own end.
    """

    pid: int
    attempt: int
    job_id: str
    restarts: int
    node: str
    began_at: int
    reached: int
    has_ended: bool


@dataclass(frozen=True)
class Counted:
    """A run of the counting program. What it tells is read from files; nothing is asked."""

    run_id: str
    path: Path
    home: Path

    @property
    def run_dir(self) -> RunDir:
        return Home(self.home).run_dir(self.path)

    @property
    def records(self) -> list[JournalRecord]:
        return journal.read(self.run_dir)

    @property
    def job_ids(self) -> list[str]:
        """Of its attempts, oldest first."""
        return [each.job_id for each in self.records if isinstance(each, Submitted)]

    @property
    def job_id(self) -> str:
        """Of its newest attempt."""
        return self.job_ids[-1]

    @property
    def job_name(self) -> str:
        """Of its newest attempt."""
        return [each.job_name for each in self.records if isinstance(each, Intended)][-1]

    @property
    def ends(self) -> list[Ended]:
        return [each for each in self.records if isinstance(each, Ended)]

    @property
    def causes(self) -> list[str]:
        """Why its attempts ended, oldest first."""
        return [each.cause.value for each in self.ends]

    @property
    def rules(self) -> list[str]:
        """By which rules the daemon has decided, oldest first."""
        return [each.rule for each in self.records if isinstance(each, Decided)]

    @property
    def executions(self) -> list[Execution]:
        """Oldest first."""
        lines = self.evidence()
        return [
            Execution(
                **{name: begin[name] for name in ("pid", "attempt", "job_id", "restarts", "node")},
                began_at=begin["train_step"],
                reached=max(each["train_step"] for each in own),
                has_ended=any(each["what"] == "end" for each in own),
            )
            for begin in lines
            if begin["what"] == "begin"
            for own in [[each for each in lines if _is_of(each, begin)]]
        ]

    def evidence(self) -> list[dict[str, Any]]:
        """What all executions have said, in this order."""
        path = self.path / "executions.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def checkpoints(self) -> list[int]:
        """Train steps of the complete ones."""
        manifests = self.run_dir.checkpoints.glob("*/manifest.json")
        return sorted(int(each.parent.name) for each in manifests if each.parent.name.isdecimal())

    def saves(self) -> int:
        """How many checkpoints it has made, about; the old ones are gone by now."""
        return -(-max(self.checkpoints(), default=0) // CHECKPOINT_EVERY)

    def events(self, attempt: int, kind: str) -> list[dict[str, Any]]:
        """What the job of an attempt has reported; what is no event is left out."""
        path = self.run_dir.attempt(attempt).events
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [line for line in map(_parsed, lines) if line.get("event") == kind]

    def is_alive(self) -> bool:
        """Whether an execution holds the lock of the run now."""
        with (self.path / "executing.lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def tell(self, word: str) -> None:
        """Create a file that counted_program.py looks for."""
        (self.path / word).touch(mode=0o666)

    def take_back(self, word: str) -> None:
        """Delete it."""
        (self.path / word).unlink(missing_ok=True)

    def wait_training(self, execution: int = 1, *, saves: int = 1) -> None:
        """Wait until that execution, counted from 1, trains, and this run has saved so often."""

        def trains() -> bool:
            found = self.executions
            return (
                len(found) >= execution
                and found[execution - 1].reached > found[execution - 1].began_at
                and self.saves() >= saves
            )

        # Slurm looks at everything that waits once a minute, should it have missed its moment.
        poll(trains, 240, lambda: f"{self.run_id}: {self.executions}, {self.records[-3:]}")

    def wait_ended(self, count: int = 1) -> None:
        """Wait until the journal knows of the end of so many attempts."""
        poll(lambda: len(self.ends) >= count, 300, lambda: f"{self.run_id}: {self.records[-3:]}")


def _parsed(line: bytes) -> dict[str, Any]:
    """The object that the line is; empty where it is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_of(line: dict[str, Any], begin: dict[str, Any]) -> bool:
    return bool(line["pid"] == begin["pid"] and line["at"] >= begin["at"] and "train_step" in line)


def start(hpcflow: Hpcflow, *options: str) -> Counted:
    """Send a run of the counting program to ``spot``; ``options`` are those of ``hpcflow run``."""
    program = hpcflow.write_config(_PROGRAM.name, _PROGRAM.read_text())
    config = hpcflow.write_config("counted.yaml", _CONFIG.format(program=program))
    done = hpcflow.json("run", config, "--site", "devcluster", *options)
    return Counted(done["run_id"], Path(done["run_dir"]), hpcflow.home)


class Daemon:
    """``hpcflow daemon`` at work."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self._log.read_text()

    def wait_says(self, text: str, deadline_s: float = 120) -> None:
        """Wait until it has printed ``text``."""
        poll(lambda: text in self.said, deadline_s, lambda: f"{text!r} is not in {self.said!r}")


@contextmanager
def start_daemon(
    hpcflow: Hpcflow,
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    patience_s: float | None = None,
) -> Iterator[Daemon]:
    """``hpcflow daemon --interval 1`` of the same user; at the end of the block it is ended.

    Args:
        log: what it prints is appended to this file.
        env: what it has in its environment besides.
        patience_s: what its patience is instead of minutes; see hurried.py.
    """
    program = ["hpcflow"]
    if patience_s is not None:
        hurried = hpcflow.home.parent / _HURRIED.name
        if not hurried.exists():  # others may be about to start it
            hpcflow.write_config(hurried.name, _HURRIED.read_text())
        program = ["python", str(hurried), str(patience_s)]
    with log.open("ab") as file:
        process = hpcflow.user.popen(
            [*program, "daemon", "--interval", "1"],
            env={**hpcflow.env, **(env or {})},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Daemon(process, log)
    except BaseException:
        # They train until they are told to finish, and would stand in the way of other tests.
        hpcflow.user.run(["scancel", f"--user={hpcflow.user.name}"], check=False)
        raise
    finally:
        process.terminate()
        process.wait(timeout=120)
    assert "Traceback" not in log.read_text()


@contextmanager
def watch(hpcflow: Hpcflow, **env: str) -> Iterator[Daemon]:
    """A daemon for the length of the block; that it does not end before is asserted."""
    with start_daemon(hpcflow, hpcflow.home.parent / "daemon.log", env=env) as daemon:
        yield daemon
        assert daemon.process.poll() is None, daemon.said


def take_all_nodes(user: User) -> None:
    """Send a short job of higher priority that needs every node; what is in its way is preempted.

    Returns at once, for ``sbatch --wait`` looks seldom; wait for the ends of the runs.
    """
    command = ["sbatch", "--partition=gpu", "--nodes=4", "--exclusive", "--time=2"]
    user.run([*command, "--output=/dev/null", "--wrap=sleep 1"])


def complete(runs: Sequence[Counted], deadline_s: float = 240) -> None:
    """Tell these runs to finish, and wait until the daemon has seen them complete."""
    for run in runs:
        run.tell("finish")
    for run in runs:
        poll(
            partial(_is_complete, run),
            deadline_s,
            lambda run=run: f"{run.run_id}: {run.executions}, {run.records[-5:]}",  # type: ignore[misc]
        )


def _is_complete(run: Counted) -> bool:
    return run.causes[-1:] == ["completed"]


def assert_counted(
    hpcflow: Hpcflow, cluster: Cluster, runs: Sequence[Counted], *, forgotten: Sequence[str] = ()
) -> None:
    """No execution was lost or doubled, and program, ledger and Slurm know of the same ones.

    Args:
        forgotten: ids of the jobs that Slurm does not know any more.
    """
    for run in runs:
        _assert_executed_one_by_one(run)
        _assert_same_jobs(hpcflow, cluster, run, set(forgotten))
    assert hpcflow("ledger", "check").returncode == 0


def _assert_executed_one_by_one(run: Counted) -> None:
    executions = run.executions
    assert [line for line in run.evidence() if line["what"] == "overlap"] == [], run.run_id
    lives = Counter((each.job_id, each.restarts) for each in executions)
    assert set(lives.values()) <= {1}, f"{run.run_id}: a life of a job executed it twice: {lives}"
    assert sum(each.has_ended for each in executions) <= 1, "completed twice"
    assert not any(each.has_ended for each in executions[:-1]), "something came after its end"
    completed = {each.attempt for each in executions if each.has_ended}
    for number in run.run_dir.attempt_numbers():
        codes = [each["exit_code"] for each in run.events(number, "exited")]
        assert 0 not in codes or number in completed, f"attempt {number} says that it completed"
    begins = [each.began_at for each in executions]
    assert begins == sorted(begins), f"{run.run_id}: a checkpoint was lost: {executions}"


def _assert_same_jobs(
    hpcflow: Hpcflow, cluster: Cluster, run: Counted, forgotten: set[str]
) -> None:
    shown = hpcflow.json("show", run.run_id)
    attempts = [each for each in shown["attempts"] if each["job_id"] is not None]
    known = {each["job_id"] for each in attempts}
    executed = {each.job_id for each in run.executions}
    assert executed <= known, f"{run.run_id}: no attempt knows of {executed - known}"
    known -= forgotten
    numbers = [each["attempt"] for each in shown["attempts"]]
    assert numbers == sorted(set(numbers))

    def told() -> list[str]:
        """Ids of the lives of all jobs of this run, as accounting counts them."""
        words = "sacct -D -X -a -n -P --format=jobid,state,jobname -S now-1hours"
        lines = cluster.run(*words.split()).splitlines()
        rows = (
            line.split("|", 2) for line in lines if line.count("|") >= 2
        )  # a name may span lines
        return [
            job_id
            for job_id, _, name in rows
            if (parsed := parse_job_name(name)) is not None and parsed[0] == run.run_id
        ]

    poll(
        lambda: set(told()) == known,
        120,
        lambda: f"{run.run_id}: accounting knows {told()}, the ledger {sorted(known)}",
        every_s=1,
    )
    lives = max((each.restarts for each in run.executions), default=0)
    assert len(known) <= len(told()) <= len(attempts) + lives
