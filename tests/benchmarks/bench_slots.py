"""Sweeps on the development cluster: how busy eight slots are, and a thousand trials at once."""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hpcflow.testing.cluster import Cluster, User, poll
from tests.benchmarks.timing import Row

_SLOTS: Final = 8
_TRIALS: Final = 100
#: So many more are in the queue than can run, to begin the moment that a slot is free.
_AHEAD: Final = 4
_SHORTEST_S: Final = 4.0
_LONGEST_S: Final = 20.0
_MANY: Final = 1000

#: Sleeps, and reports that it is at its end.
_PROGRAM: Final = """
sleep "$1"
python3 -m hpcflow.runtime finish --train-step 1 score=1
"""
_CONFIG: Final = """
name: base
command: [sh, program.sh, "{{ params.seconds }}"]
launch: {framework: none, launcher: none}
resources:
  partition: spot
  exclude: "n[3-4]"
  gpus_per_node: 1
  cpus_per_task: 1
  mem: 100M
  time_limit: 5m
checkpoint: {notice: 1s}
"""
_SWEEP: Final = """
name: {name}
base: config.yaml
space: {{seconds: {{low: {low}, high: {high}}}}}
objective: {{metric: score, direction: maximize}}
sampler: {{type: random, seed: 1}}
parallel: {parallel}
submit: {submit}
budget: {{trials: {trials}}}
"""


def rows(cluster: Cluster) -> list[Row]:
    """Measure both."""
    cluster.software(Path(__file__).resolve().parents[2], Path(sys.executable))
    user = cluster.user("hpcf-ada")
    folder = user.scratch / f"bench-{uuid.uuid4().hex[:8]}"
    user.run(["mkdir", str(folder)])
    env = {"HPCFLOW_HOME": str(folder / "home")}
    (folder / "config.yaml").write_text(_CONFIG)
    (folder / "program.sh").write_text(_PROGRAM)
    return [_slots(user, folder, env), _many(cluster, user, folder, env)]


def _start(user: User, folder: Path, env: dict[str, str], **said: Any) -> float:
    """Start a sweep; seconds that it took."""
    (folder / f"{said['name']}.yaml").write_text(_SWEEP.format(**said))
    argv = ["hpcflow", "sweep", "start", f"{said['name']}.yaml", "--site", "devcluster"]
    began = time.perf_counter()
    user.run(argv, cwd=folder, env=env, timeout=300)
    return time.perf_counter() - began


def _slots(user: User, folder: Path, env: dict[str, str]) -> Row:
    said = {"low": _SHORTEST_S, "high": _LONGEST_S, "trials": _TRIALS, "submit": "single"}
    _start(user, folder, env, name="slots", parallel=_SLOTS + _AHEAD, **said)
    daemon = user.popen(
        ["hpcflow", "daemon", "--interval", "2"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def is_over() -> bool:
            seen = user.run(["hpcflow", "sweep", "status", "slots", "--json"], env=env).stdout
            return bool(json.loads(seen)["state"] == "over")

        poll(is_over, 900, "the sweep never ended", every_s=3.0)
    finally:
        daemon.terminate()
        daemon.wait(60)
    spans = _spans(user)
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    lengths = [end - begin for begin, end in sorted(spans)]
    share = sum(lengths) / (_SLOTS * (last - first))
    ideal = sum(lengths) / (_SLOTS * _makespan(lengths))
    batches = [lengths[at : at + _SLOTS] for at in range(0, len(lengths), _SLOTS)]
    barrier = sum(lengths) / (_SLOTS * sum(max(batch) for batch in batches))
    return Row(
        f"slot time used by {_TRIALS} trials of {_SHORTEST_S:.0f} to {_LONGEST_S:.0f} s on "
        f"{_SLOTS} slots, {_AHEAD} waiting in the queue",
        f"{share:.2f}, which is {share / ideal:.2f} × the ideal without barrier ({ideal:.2f}); in "
        f"batches that wait for their slowest, as Hydra's submitit launcher does, the same "
        f"trials could use {barrier:.2f}",
        "at least 0.95 × the ideal",
        share / ideal >= 0.95,
    )


def _spans(user: User) -> list[tuple[float, float]]:
    """When each job began and ended, as accounting says."""
    out = user.run(
        ["sacct", "--allocations", "--noheader", "--parsable2", "--starttime", "now-1hours",
         "--format", "JobName,Start,End"]
    ).stdout  # fmt: skip
    found = []
    for line in out.splitlines():
        name, begin, end = line.rsplit("|", 2)
        if name.startswith("slots-t"):
            found.append(
                (
                    datetime.fromisoformat(begin).timestamp(),
                    datetime.fromisoformat(end).timestamp(),
                )
            )
    return found


def _makespan(lengths: list[float]) -> float:
    """How long so many slots take that are never idle while there is anything left to begin."""
    slots = [0.0] * _SLOTS
    for length in lengths:
        heapq.heappush(slots, heapq.heappop(slots) + length)
    return max(slots)


def _many(cluster: Cluster, user: User, folder: Path, env: dict[str, str]) -> Row:
    # What is submitted is not started: here the nodes are the very machine that submits.
    cluster.run("scontrol", "update", "partitionname=spot", "state=down")
    try:
        said = {"low": 1, "high": 2, "trials": _MANY, "submit": "array"}
        taken = _start(user, folder, env, name="many", parallel=_MANY, **said)
        queued = user.run(["squeue", "--me", "--array", "--noheader", "--format=%i"]).stdout.split()
    finally:
        user.run(["scancel", "--me"], check=False)
        cluster.run("scontrol", "update", "partitionname=spot", "state=up")
    return Row(
        f"`hpcflow sweep start` of {_MANY:,} trials as an array, whole process",
        f"{taken:.1f} s, {len(queued):,} tasks in the queue",
        "at most 10 s",
        taken <= 10.0 and len(queued) == _MANY,
    )
