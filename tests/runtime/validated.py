"""The training script of docs/training.md, with validation after the inner loop, as that page says.

Validation number n gives the n-th of ``VAL_LOSSES``. ``HURT`` is what happens to the process, and
when: ``trained:58:USR2`` at the end of train step 58, ``validating:58:KILL`` before its value is
logged, ``validated:58:KILL`` after that.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Of the digits, in an epoch.
BATCHES = 29
EPOCHS = 5
LAST = EPOCHS * BATCHES
LOSSES = [0.5, 0.6, 0.3, 0.9, 0.8]

_BEFORE = """\
import os, signal, torch.distributed as dist

def hurt(when):
    at, train_step, how = os.environ.get("HURT", "::").split(":")
    if (at, train_step) == (when, str(run.train_step)):
        signal.raise_signal(signal.Signals["SIG" + how])

if "MEET" in os.environ:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", os.environ["MEET"], rank=rank, world_size=world_size)
"""
_LOG = "        run.log(loss=loss)\n"
_VALIDATION = """\
        hurt("trained")
    hurt("validating")
    run.log(val_loss=float(os.environ["VAL_LOSSES"].split()[epoch]))
    hurt("validated")
"""


def write_script(path: Path) -> Path:
    """Write the script to ``path``."""
    page = (ROOT / "docs" / "training.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)
    assert code.count(_LOG) == 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_BEFORE + code.replace(_LOG, _LOG + _VALIDATION))
    return path


def val_loss_at(train_step: int) -> float | None:
    """What was logged last for ``train_step`` or before."""
    epochs = train_step // BATCHES
    return LOSSES[epochs - 1] if epochs else None
