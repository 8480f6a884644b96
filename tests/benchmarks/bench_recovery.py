"""How long a preempted training stands still, and how much of its work is lost.

On the real development cluster, with the daemon as its users start it. A job of higher priority
takes the training's own node, so that others are idle; Slurm's own requeue is measured beside it.
"""

from __future__ import annotations

import json
import random
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.requeue.daemon.loop import INTERVAL_S
from hpcflow.testing.cluster import Cluster, Software, User, poll
from tests.benchmarks.timing import Row

_PREEMPTIONS: Final = 8
_NO_GRACE: Final = 3
_CRASHES: Final = 3
#: Train steps between two checkpoints: some seconds of them.
_CHECKPOINT_EVERY: Final = 500
_TOGETHER_S: Final = 300


def rows(cluster: Cluster) -> list[Row]:
    """Preempt a training again and again, with a notice and without."""
    tree = Path(__file__).resolve().parents[2]
    software = cluster.software(tree, Path(sys.executable))
    ada, grace = cluster.user("hpcf-ada"), cluster.user("hpcf-grace")
    requeued = _Requeued(cluster, ada, grace)
    with _training(ada, software) as training:
        for number in range(1, _PREEMPTIONS + 1):
            training.preempt(number, by=grace)
        with _no_grace(cluster):
            for number in range(_PREEMPTIONS + 1, _PREEMPTIONS + _NO_GRACE + 1):
                training.preempt(number, by=grace)
        taken = _PREEMPTIONS + _NO_GRACE
        for number in range(taken + 1, taken + _CRASHES + 1):
            training.crash(number, cluster)
        told = training.history()
    importing_s = _importing_s(ada, software)
    recoveries = [
        _recovery(training, told[number - 1], told[number]) for number in range(1, taken + 1)
    ]
    lost = [chapter["lost_train_steps"] for chapter in told]
    with_notice, without = lost[:_PREEMPTIONS], lost[taken:-1]
    no_grace = lost[_PREEMPTIONS:taken]
    return [
        *_times(recoveries, importing_s),
        Row(
            "the same by Slurm's own requeue, only until the job starts",
            f"{requeued.wait_s():.0f} s",
            "none",
            True,
        ),
        Row(
            f"train steps lost in {len(with_notice)} preemptions with a notice",
            f"{max(with_notice)} at most",
            "0",
            max(with_notice) == 0,
        ),
        Row(
            f"train steps lost in {len(no_grace)} preemptions with a grace time of zero, where "
            f"Slurm still waits KillWait; in {len(without)} crashes of the node",
            f"{max(no_grace)} at most; {', '.join(map(str, without))}",
            f"at most the checkpoint interval, {_CHECKPOINT_EVERY}",
            max(*no_grace, *without) <= _CHECKPOINT_EVERY,
        ),
    ]


@dataclass(frozen=True)
class _Recovery:
    """Seconds from a job's end: until it was seen, the next was sent, ran, and trained."""

    seen_s: float
    sent_s: float
    started_s: float
    trained_s: float


def _times(recoveries: Sequence[_Recovery], importing_s: float) -> list[Row]:
    all_s = [each.trained_s for each in recoveries]

    def of(seconds: list[float]) -> str:
        return f"{median(seconds):.1f} s ({max(seconds):.1f} s)"

    seen = of([each.seen_s for each in recoveries])
    sent = of([each.sent_s - each.seen_s for each in recoveries])
    slurm = of([each.started_s - each.sent_s for each in recoveries])
    program = of([each.trained_s - each.started_s for each in recoveries])
    return [
        Row(
            f"from a preempted job's end to the next train step, {len(all_s)} preemptions",
            f"median {median(all_s):.1f} s, worst {max(all_s):.1f} s",
            "median at most 15 s, worst at most 30 s",
            median(all_s) <= 15 and max(all_s) <= 30,
        ),
        Row(
            "its parts, median (worst): the daemon sees the end; submits the next job; "
            "Slurm starts it; the program makes its first train step",
            f"{seen}; {sent}; {slurm}; {program} (of it `import torch` alone: {importing_s:.1f} s)",
            "none",
            True,
        ),
    ]


class _Training:
    """The digits example on a node that can be taken away, watched by a daemon."""

    def __init__(self, user: User, env: dict[str, str], run: dict[str, Any]) -> None:
        self._user, self._env = user, env
        self._run_id: str = run["run_id"]
        self._run_dir = Path(run["run_dir"])
        self._chance = random.Random(self._run_id)

    def preempt(self, attempt: int, *, by: User) -> None:
        """Take the node of ``attempt`` some time after its first checkpoint; wait for the next."""
        _take(by, self._node(attempt))
        poll(lambda: self.events(attempt + 1, "progress"), _TOGETHER_S, "it goes on")

    def crash(self, attempt: int, cluster: Cluster) -> None:
        """Let the node of ``attempt`` die some time after its first checkpoint."""
        node = self._node(attempt)
        cluster.crash_node(node)
        poll(lambda: self.events(attempt + 1, "progress"), _TOGETHER_S, "it goes on")
        cluster.revive_node(node)

    def _node(self, attempt: int) -> str:
        """Where ``attempt`` runs, at a moment when it has something to lose."""
        poll(lambda: self.events(attempt, "checkpoint"), _TOGETHER_S, f"attempt {attempt} saves")
        # At any moment between two rounds of the daemon, and between two checkpoints.
        time.sleep(self._chance.uniform(0, INTERVAL_S))
        node: str = self.events(attempt, "started")[0]["nodes"][0]
        return node

    def events(self, attempt: int, kind: str) -> list[dict[str, Any]]:
        """What the job of ``attempt`` has said so far, of this kind."""
        path = self._run_dir / f"attempts/{attempt:04d}/events.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        said = (json.loads(line) for line in lines)
        return [event for event in said if event["event"] == kind]

    def journal(self, kind: str, attempt: int) -> dict[str, Any]:
        """The last record of this kind about ``attempt``."""
        records = map(json.loads, (self._run_dir / "journal.jsonl").read_text().splitlines())
        found = [r for r in records if r["record"] == kind and r.get("attempt") == attempt]
        last: dict[str, Any] = found[-1]
        return last

    def history(self) -> list[dict[str, Any]]:
        """The chapters that `hpcflow history` tells."""
        said = self._user.run(["hpcflow", "history", self._run_id, "--json"], env=self._env)
        chapters: list[dict[str, Any]] = json.loads(said.stdout)["attempts"]
        return chapters

    def cancel(self) -> None:
        """End it."""
        self._user.run(["hpcflow", "cancel", self._run_id], env=self._env)


@contextmanager
def _training(user: User, software: Software) -> Iterator[_Training]:
    folder = user.scratch / f"bench-{uuid.uuid4().hex[:8]}"
    user.run(["mkdir", "-m", "700", str(folder)])
    env = {"HPCFLOW_HOME": str(folder / "home")}
    log = folder / "daemon.log"
    daemon = user.popen(
        ["bash", "-c", f"exec hpcflow daemon > {log} 2>&1"], env=env, stdout=None, stderr=None
    )
    settings = (
        "resources.partition=spot", "params.epochs=1000000", "checkpoint.interval=1h",
        "retry.backoff=1s",
        f"checkpoint.every_train_steps={_CHECKPOINT_EVERY}",
    )  # fmt: skip
    try:
        config = software.examples / "digits" / "config.yaml"
        more = [word for setting in settings for word in ("--set", setting)]
        command = ["hpcflow", "run", str(config), "--site", "devcluster", *more, "--json"]
        training = _Training(user, env, json.loads(user.run(command, env=env).stdout))
        yield training
        training.cancel()
    finally:
        daemon.terminate()
        daemon.wait(timeout=60)


def _recovery(training: _Training, before: dict[str, Any], after: dict[str, Any]) -> _Recovery:
    ended_at = from_text(before["ended_at"])

    def since(text: str) -> float:
        return max(0.0, (from_text(text) - ended_at).total_seconds())

    number = after["attempt"]
    return _Recovery(
        seen_s=since(training.journal("ended", before["attempt"])["at"]),
        sent_s=since(training.journal("submitted", number)["at"]),
        started_s=since(training.events(number, "started")[0]["at"]),
        trained_s=since(training.events(number, "progress")[0]["at"]),
    )


def _take(user: User, node: str) -> str:
    """Send a short job that outranks what runs on ``node``; its id."""
    command = ["sbatch", "--parsable", "--partition=gpu", f"--nodelist={node}", "--exclusive"]
    return user.run([*command, "--time=1", "--output=/dev/null", "--wrap=sleep 1"]).stdout.strip()


@contextmanager
def _no_grace(cluster: Cluster) -> Iterator[None]:
    """Jobs are killed at once instead of told to leave."""
    cluster.run("scontrol", "update", "partitionname=spot", "gracetime=0")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", "partitionname=spot", "gracetime=5")


class _Requeued:
    """A job that Slurm itself sends again, preempted when this is made."""

    def __init__(self, cluster: Cluster, user: User, by: User) -> None:
        self._user = user
        node = cluster.settings.node_names[-1]
        self._starts = user.scratch / f"requeued-{uuid.uuid4().hex[:8]}"
        script = f"date +%s >> {self._starts}; sleep 1000"
        self._job = user.run(
            ["sbatch", "--parsable", "--requeue", "--partition=spot", f"--nodelist={node}",
             "--exclusive", "--time=20", "--output=/dev/null", f"--wrap={script}"]
        ).stdout.strip()  # fmt: skip
        poll(lambda: len(self._started()) == 1, 60, "it never ran")
        _take(by, node)

    def wait_s(self) -> float:
        """Seconds from its preemption to its second start."""
        poll(lambda: len(self._started()) == 2, _TOGETHER_S, "it was not requeued")
        said = self._user.run(
            ["sacct", "--duplicates", "--allocations", "--noheader", "--parsable2", "--jobs",
             self._job, "--format=End"],
            env={"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"},
        ).stdout.split()  # fmt: skip
        self._user.run(["scancel", self._job])
        queued = ["squeue", "--noheader", f"--jobs={self._job}", "--states=running,completing"]
        poll(lambda: not self._user.run(queued).stdout.strip(), 60, "it leaves its node")
        return self._started()[1] - int(said[0])

    def _started(self) -> list[int]:
        return [int(each) for each in self._starts.read_text().split()] if self._is_there() else []

    def _is_there(self) -> bool:
        return self._starts.exists()


def _importing_s(user: User, software: Software) -> float:
    """What a training's imports take alone, in a process of its own."""
    command = [str(software.python), "-c", "import torch, torch.distributed"]
    times = []
    for _ in range(3):
        began = time.perf_counter()
        user.run(command)
        times.append(time.perf_counter() - began)
    return median(times)
