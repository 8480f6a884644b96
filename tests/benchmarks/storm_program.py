"""A training that does nothing but exist, count its executions, and complete when a file says so.

Standard library only: three hundred of it start at once, on the two cores of one machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from hpcflow import runtime

_FOREVER = 10**9


def main() -> None:
    """Note this execution; take one train step after the other until the file is there."""
    with (Path(os.environ["HPCFLOW_RUN_DIR"]) / "executions").open("a") as file:
        file.write(f"{os.environ['HPCFLOW_ATTEMPT']}\n")
    run = runtime.start()
    state = {"train_step": 0}
    run.restore(state=state)
    finish = Path(run.params.finish)
    for train_step in run.train_steps(_FOREVER):
        time.sleep(0.5)
        state["train_step"] = train_step
        if finish.exists():
            break
    run.finish()


if __name__ == "__main__":
    main()
