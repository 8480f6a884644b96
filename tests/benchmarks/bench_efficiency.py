"""What it costs to see what a job uses, and to sum that up across runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcflow.ledger.store import open_ledger
from hpcflow.projection import rebuild
from hpcflow.storage.layout import Home
from hpcflow.storage.runs import list_runs
from tests.benchmarks.bench_ledger import make_completed
from tests.benchmarks.timing import Row, in_turn, quiet, wall
from tests.ledger import lines as say

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = Path(__file__).with_name("sampled_program.py")
_SECONDS = 300
#: Other processes of this user on the node: each is looked at to see whose it is.
_OTHERS = 200
_RUNS = 10_000
_ROUNDS = 5


def rows() -> list[Row]:
    """Measure beside a real training, in a folder of its own."""
    root = Path(tempfile.mkdtemp(prefix="hpcflow-bench-", dir="/var/tmp"))
    try:
        return [_sampling(root), *_across(root)]
    finally:
        shutil.rmtree(root)


def _sampling(root: Path) -> Row:
    (root / "attempt").mkdir()
    environment = {
        **os.environ,
        "HPCFLOW_ATTEMPT_DIR": str(root / "attempt"),
        "HPCFLOW_EVENTS": str(root / "attempt" / "events.jsonl"),
        "PYTHONPATH": str(_ROOT),
    }
    with _others():
        began = time.monotonic()
        training = subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(_SECONDS)],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        command = ["python3", "-S", "-m", "hpcflow.runtime.sampling", str(training.pid)]
        sampler = subprocess.Popen([*command, str(training.pid), "cpus=2"], env=environment)
        held_mb = _most_held_mb(training, sampler)
        _, _, used = os.wait4(sampler.pid, 0)
        wall_s = time.monotonic() - began
    cpu_s = used.ru_utime + used.ru_stime
    share = 100 * cpu_s / wall_s
    events = (root / "attempt" / "events.jsonl").stat().st_size
    return Row(
        f"the sampler beside a training of {_SECONDS} s with {_OTHERS} other processes of the user",
        f"{share:.3f} % of a core ({1000 * cpu_s:.0f} ms, its start included), "
        f"{held_mb:.0f} MB, {events} bytes of events",
        "under 0.1 % of a core",
        share < 0.1,
    )


def _most_held_mb(training: subprocess.Popen[bytes], sampler: subprocess.Popen[bytes]) -> float:
    """The most memory of the sampler until the training has ended; of its own, not of ours, which
    it had until it was executed."""
    held_kb = 0
    while training.poll() is None:
        for line in Path(f"/proc/{sampler.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                held_kb = int(line.split()[1])
        time.sleep(1)
    return held_kb * 1024 / 1e6


@contextmanager
def _others() -> Iterator[None]:
    started = [subprocess.Popen(["sleep", "1000"]) for _ in range(_OTHERS)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _across(root: Path) -> list[Row]:
    usage = say.event(
        "usage", 50, seconds=3000.0, samples=100, nodes=1, cores_mean=2.5, mem_peak_mb=32_000,
        gpus=4, gpu_busy_mean=55.0, asked={"cpus": 8, "gpus": 4, "mem_mb": 200_000},
    )  # fmt: skip
    for number in range(_RUNS):
        run_dir = make_completed(root, number, 10)
        with run_dir.attempt(1).events.open("ab") as file:
            file.write(usage)
    home = Home(root / "home")
    with open_ledger(str(home.ledger)) as ledger:
        rebuild(ledger, list_runs(home))
    hpcflow = str(Path(sys.executable).with_name("hpcflow"))
    environment = {**os.environ, "HPCFLOW_HOME": str(home.path)}
    name = "hpcflow efficiency --by user"
    usages = in_turn({name: quiet([hpcflow, *name.split()[1:]], env=environment)}, _ROUNDS)[name]
    return [
        Row(
            f"`{name}` over {_RUNS:,} runs, whole process",
            f"{wall(usages):.2f} s, {max(usage.peak_mb for usage in usages) * 1.048576:.0f} MB",
            "at most 2 s",
            wall(usages) <= 2,
        )
    ]
