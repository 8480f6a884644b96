"""A program for tests: says who it is, and what it is told.

Usage: rank.py OUT SECONDS [ARGUMENT…]. Writes OUT/<rank>.json at once and a line to
OUT/<rank>.signals for every signal. It leaves with 75 after a signal, with 0 after SECONDS; with
the argument "go", these begin once OUT/go exists.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

out, seconds = Path(sys.argv[1]), float(sys.argv[2])
rank = os.environ.get("RANK", "none")
told: list[int] = []


def on_signal(number: int, _frame: object) -> None:
    told.append(number)
    with (out / f"{rank}.signals").open("a") as file:
        file.write(signal.Signals(number).name + "\n")


default = signal.getsignal(signal.SIGUSR2)
signal.signal(signal.SIGUSR2, on_signal)
signal.signal(signal.SIGTERM, on_signal)
me = {"argv": sys.argv[3:], "environ": dict(os.environ), "usr2_ignored": default == signal.SIG_IGN}
(out / f"{rank}.part").write_text(json.dumps(me))
(out / f"{rank}.part").rename(out / f"{rank}.json")

if "allreduce" in sys.argv:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    total = torch.tensor([float(rank)])
    distributed.all_reduce(total)
    (out / f"{rank}.sum").write_text(str(total.item()))
    distributed.destroy_process_group()

while "go" in sys.argv and not (out / "go").exists() and not told:
    time.sleep(0.05)
end = time.monotonic() + seconds
while time.monotonic() < end and not told:
    time.sleep(0.05)
# Python gives up its handlers while it ends, and the next signal would kill it.
for number in (signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
sys.exit(75 if told else 0)
