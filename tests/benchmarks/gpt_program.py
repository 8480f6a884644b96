"""Trains examples/gpt, and prints as JSON when each train step began: ``gpt_program.py TRAIN.PY``.

The last one is when the loop ended. From one to the next it takes as long as the train step and the
save after it hold the training.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Iterator

from hpcflow import runtime


def main() -> None:
    """One rank."""
    began: list[float] = []
    train_steps = runtime.Run.train_steps

    def timed(run: runtime.Run, total: int) -> Iterator[int]:
        for train_step in train_steps(run, total):
            began.append(time.perf_counter())
            yield train_step
        began.append(time.perf_counter())
        if run.rank == 0:
            print(json.dumps(began), flush=True)

    runtime.Run.train_steps = timed  # type: ignore[method-assign, assignment]
    runpy.run_path(sys.argv[1], run_name="__main__")


if __name__ == "__main__":
    main()
