"""How long a train loop stands still for a checkpoint, against torch's two ways of saving."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmarks import saving_program
from tests.benchmarks.timing import Row

_ROUNDS = 7
_ROOT = Path(__file__).resolve().parents[2]


def rows() -> list[Row]:
    """Measure on the disk of ``/var/tmp``, in one process, all ways in turn."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hpcflow-bench-saving-") as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", saving_program.__file__, folder, str(_ROUNDS)],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE,
            check=True,
        )
    seconds: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])

    def ratio(one: str, other: str) -> float:
        return median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))

    def ms(name: str) -> str:
        return f"{median(seconds[name]) * 1000:.0f} ms"

    size_mb = seconds["bytes"][0] / 1e6
    held, peer = ratio("hpcflow", "torch.save"), ratio("hpcflow", "async_save")
    speed = ratio("write", "hpcflow, visible")
    return [
        Row(
            f"the train loop stands still for a checkpoint of {size_mb:.0f} MB on the CPU",
            f"{held:.2f} × a synchronous `torch.save` without fsync ({ms('hpcflow')}, "
            f"{ms('torch.save')}); the first time {ms('hpcflow, first')}",
            "at most 0.10 ×",
            held <= 0.10,
        ),
        Row(
            "the same, against `torch.distributed.checkpoint.async_save`",
            f"{peer:.2f} × ({ms('async_save')})",
            "below 1.0 ×",
            peer < 1.0,
        ),
        Row(
            "the same, until it is visible, checksums and fsync included",
            f"{speed:.2f} × the speed of write and fsync of the same bytes "
            f"({ms('hpcflow, visible')}, {ms('write')})",
            "at least 0.8 ×",
            speed >= 0.8,
        ),
    ]
