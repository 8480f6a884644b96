"""How long a train loop stands still for a checkpoint, against torch's two ways of saving."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmarks.timing import Row

#: What was measured -> its seconds, round by round.
_Seconds = dict[str, list[float]]

_ROUNDS = 7
_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = Path(__file__).with_name("saving_program.py")


def rows() -> list[Row]:
    """Measure on the disk of ``/var/tmp``: all ways in turn, in one process, then on two ranks."""
    alone = _measured([sys.executable])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    sharded = _measured(torchrun)
    speed = _ratio(alone, "write", "hpcflow, visible")
    return [
        *_held(alone, "on the CPU"),
        Row(
            "the same, until it is visible, checksums and fsync included",
            f"{speed:.2f} × the speed of write and fsync of the same bytes "
            f"({_ms(alone, 'hpcflow, visible')}, {_ms(alone, 'write')})",
            "at least 0.8 ×",
            speed >= 0.8,
        ),
        *_held(sharded, "sharded over two ranks (FSDP2) on the CPU"),
        Row(
            "the same, against `torch.save` by each rank of its own shards, both at once",
            f"{_ratio(sharded, 'hpcflow', 'torch.save of shards'):.2f} × "
            f"({_ms(sharded, 'torch.save of shards')})",
            "none",
            True,
        ),
    ]


def _held(seconds: _Seconds, where: str) -> list[Row]:
    """How long the train loop stands still."""
    held, peer = _ratio(seconds, "hpcflow", "torch.save"), _ratio(seconds, "hpcflow", "async_save")
    return [
        Row(
            f"the train loop stops for a checkpoint of {seconds['bytes'][0] / 1e6:.0f} MB {where}",
            f"{held:.2f} × a synchronous `torch.save` without fsync ({_ms(seconds, 'hpcflow')}, "
            f"{_ms(seconds, 'torch.save')}); the first time {_ms(seconds, 'hpcflow, first')}",
            "at most 0.10 ×",
            held <= 0.10,
        ),
        Row(
            "the same, against `torch.distributed.checkpoint.async_save`",
            f"{peer:.2f} × ({_ms(seconds, 'async_save')})",
            "below 1.0 ×",
            peer < 1.0,
        ),
    ]


def _measured(python: list[str]) -> _Seconds:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hpcflow-bench-saving-") as folder:
        done = subprocess.run(
            [*python, str(_PROGRAM), folder, str(_ROUNDS)],
            env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            check=True,
        )
    measured: _Seconds = json.loads(done.stdout.splitlines()[-1])
    return measured


def _ratio(seconds: _Seconds, one: str, other: str) -> float:
    return median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))


def _ms(seconds: _Seconds, name: str) -> str:
    return f"{median(seconds[name]) * 1000:.0f} ms"
