"""A round of a sweep: with nothing to do, and over a thousand finished trials.

The whole process is that of a user's cron; the round over finished trials is timed inside of one,
on a cluster in memory, with a sampler that takes no time of its own.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from hpcflow.model.sweep_records import Asked, Closed, Judged, Read, SweepRecord, Told
from hpcflow.storage.sweeps import append
from tests.benchmarks.timing import Row, in_turn, wall
from tests.sweeps.searched import Searched

_ROUNDS: Final = 7
_TRIALS: Final = 1000

_CONFIG: Final = """
name: base
command: [sleep, "1000"]
launch: {framework: none, launcher: none}
"""
_SWEEP: Final = """
name: idle
base: config.yaml
space: {lr: {low: 0.0, high: 1.0}}
objective: {metric: accuracy, direction: maximize}
sampler: random
parallel: 8
budget: {trials: 100}
"""


def rows() -> list[Row]:
    """Measure both."""
    with TemporaryDirectory() as folder:
        return [*_idle(Path(folder)), *_thousand(Path(folder))]


def _idle(folder: Path) -> list[Row]:
    (folder / "config.yaml").write_text(_CONFIG)
    (folder / "sweep.yaml").write_text(_SWEEP)
    hpcflow = str(Path(sys.executable).with_name("hpcflow"))
    env = {**os.environ, "HPCFLOW_SITE": "local"}
    envs = {name: {**env, "HPCFLOW_HOME": str(folder / name)} for name in ("none", "eight")}
    sweep = [hpcflow, "sweep"]
    subprocess.run(
        [*sweep, "start", str(folder / "sweep.yaml")],
        env=envs["eight"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        for name in envs:  # what is compiled and made once
            subprocess.run([*sweep, "tick"], env=envs[name], check=True)
        times = in_turn(
            {
                name: partial(subprocess.Popen, [*sweep, "tick"], env=each, text=True)
                for name, each in envs.items()
            },
            _ROUNDS,
        )
    finally:
        stop = [*sweep, "stop", "idle", "--cancel"]
        subprocess.run(stop, env=envs["eight"], check=False, stdout=subprocess.DEVNULL)
    what = {
        "none": "`hpcflow sweep tick` without an active sweep, whole process",
        "eight": "the same with 8 running trials, in which nothing happened",
    }
    return [
        Row(what[name], f"{wall(usages):.2f} s", "under 0.5 s", wall(usages) < 0.5)
        for name, usages in times.items()
    ]


def _thousand(folder: Path) -> list[Row]:
    (folder / "desk").mkdir()
    desk = Searched(folder / "desk")
    desk.begin(
        f"parallel: 8\nbudget: {{trials: {5 * _TRIALS}}}\nsampler: random\npruner: {{type: asha}}\n"
    )
    chance, now = random.Random(0), desk.clock.now()
    records: list[SweepRecord] = []
    for trial in range(_TRIALS):
        run = f"search-t{trial}-20260301-abcdefgh"
        points = [(point, chance.random()) for point in range(1, 101)]
        records += [
            Asked(at=now, trial=trial, params={"lr": 10 ** chance.uniform(-4, 0)}, runs=[run]),
            Read(at=now, trial=trial, run=run, attempt=1, offset_bytes=1, total=100, points=points),
            Judged(at=now, trial=trial, to=100),
            Told(at=now, trial=trial, outcome="complete", values=[chance.random()]),
            Closed(at=now, trial=trial, seconds=100, gpu_hours=1.0),
        ]
    append(desk.sweep_dir, records)
    desk.round()  # asks for the first
    gc.disable()  # as `hpcflow sweep tick` does
    taken: dict[str, float] = {}
    taken["nothing"] = median(_seconds(desk) for _ in range(_ROUNDS))
    desk.reports(_TRIALS, 50, 0.5)
    taken["judges"] = _seconds(desk)
    desk.completes(_TRIALS + 1, 0.5)
    taken["asks"] = _seconds(desk)
    return [
        Row(
            f"a round with {_TRIALS:,} finished trials of 100 points each, in one process",
            f"{taken['nothing']:.2f} s where nothing happened, {taken['judges']:.2f} s where a "
            f"trial is judged, {taken['asks']:.2f} s where one ended and a new one is submitted",
            "at most 1 s besides the sampler",
            max(taken.values()) <= 1.0,
        )
    ]


def _seconds(desk: Searched) -> float:
    began = time.perf_counter()
    desk.round()
    return time.perf_counter() - began
