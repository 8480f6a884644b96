"""What a save every minute costs a training: the GPT example, its state sharded over two ranks.

Saves are made much more often than once a minute, so that there are many of them. What one costs is
the time that the train steps took longer from where it began until a while after it was visible:
the writing beside the training is in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from tests.benchmarks.timing import Row

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = Path(__file__).with_name("gpt_program.py")
_EVERY = 30  # train steps; the first half of them is compared with the second
_SAVES = 7
_MINUTE_S = 60

#: nanoGPT's model for single characters, 10.8 million parameters; AdamW has two numbers for each.
_PARAMS = {
    "parallel": "fsdp2",
    "n_layer": 6,
    "n_head": 6,
    "n_embd": 384,
    "block_size": 64,
    "batch_size": 4,
    "train_steps": _EVERY * (_SAVES + 1),
}


def rows() -> list[Row]:
    """Measure on the disk of ``/var/tmp``."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hpcflow-bench-gpt-") as folder:
        took_s, size_bytes, held_s = _train(Path(folder))
    costs_s = []
    for save in range(_EVERY, len(took_s) - _EVERY + 1, _EVERY):
        # Train step number n is at n - 1; that after which it is saved is held for it.
        during = took_s[save - 1 : save - 1 + _EVERY // 2]
        after = took_s[save - 1 + _EVERY // 2 : save - 1 + _EVERY]
        costs_s.append(sum(during) - sum(after))
    cost_s, train_step_s = median(costs_s), median(took_s)
    overhead = cost_s / _MINUTE_S
    return [
        Row(
            f"the GPT example, FSDP2 on two ranks with one core each: a save of "
            f"{size_bytes / 1e6:.0f} MB every minute",
            f"{overhead:.2%} of the train step time ({train_step_s * 1000:.0f} ms): the train "
            f"steps of a save take {cost_s * 1000:.0f} ms more in all, the train loop stops for "
            f"{held_s * 1000:.0f} ms of it",
            "below 3 %",
            overhead < 0.03,
        )
    ]


def _train(folder: Path) -> tuple[list[float], int, float]:
    """The seconds of every train step; bytes of a checkpoint; seconds the loop is held for one."""
    params, events = folder / "params.json", folder / "events.jsonl"
    params.write_text(json.dumps(_PARAMS))
    environ = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "OMP_NUM_THREADS": "1",
        "HPCFLOW_PARAMS": str(params),
        "HPCFLOW_EVENTS": str(events),
        "HPCFLOW_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": str(_EVERY),
        "HPCFLOW_CHECKPOINT_KEEP": json.dumps({"last": 1}),
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    example = _ROOT / "examples" / "gpt" / "train.py"
    done = subprocess.run(
        [*torchrun, str(_PROGRAM), str(example)],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    began: list[float] = json.loads(done.stdout.splitlines()[0])
    made = [json.loads(line) for line in events.read_text().splitlines() if '"checkpoint"' in line]
    took_s = [end - begin for begin, end in pairwise(began)]
    return took_s, made[0]["size_bytes"], median(each["held_s"] for each in made[:-1])
