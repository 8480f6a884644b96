"""A training of a few milliseconds per train step that counts its own executions.

Standard library only, for it must start at once. Everything is appended to ``executions.jsonl`` in
the run directory; as long as it runs it holds ``executing.lock``, and a second execution of the
same run that finds the lock taken says so and fails. Files in the run directory tell it what to do:

- ``finish``: complete after this train step
- ``fail``: leave after this train step with exit code 1; the file is taken away
- ``stick``: the next save writes half of its files and sticks, until ``stick`` is gone

With ``params: {deaf: true}`` no notice reaches it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hpcflow import runtime

FOLDER = Path(os.environ["HPCFLOW_RUN_DIR"])
TRAIN_STEP_S = 0.05


class Log:
    """Lines of this execution, among those of all others."""

    def __init__(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(FOLDER / "executions.jsonl", flags, 0o600)

    def say(self, what: str, **facts: Any) -> None:
        line = json.dumps({"what": what, "pid": os.getpid(), "at": time.time(), **facts})
        os.write(self._file, f"{line}\n".encode())


class State:
    """What a checkpoint holds: the number of train steps, in two files."""

    def __init__(self) -> None:
        self.train_step = 0

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "first").write_text(str(self.train_step))
        if (FOLDER / "stick").exists():
            (FOLDER / "stuck").write_text(str(self.train_step))
        while (FOLDER / "stick").exists():
            time.sleep(0.02)
        (folder / "second").write_text(str(self.train_step))

    def load(self, folder: Path) -> None:
        first, second = (int((folder / name).read_text()) for name in ("first", "second"))
        assert first == second
        self.train_step = first


def main() -> None:
    log = Log()
    lock = os.open(FOLDER / "executing.lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.say("overlap", attempt=int(os.environ["HPCFLOW_ATTEMPT"]))
        sys.exit("another execution of this run is alive")
    is_deaf = runtime.params.get("deaf", False)
    if is_deaf:
        del os.environ["HPCFLOW_NOTICE"]
    run, state = runtime.start(), State()
    if is_deaf:
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    began_at = run.restore(state=state)
    assert state.train_step == began_at
    log.say(
        "begin",
        attempt=int(os.environ["HPCFLOW_ATTEMPT"]),
        job_id=os.environ["SLURM_JOB_ID"],
        restarts=int(os.environ.get("SLURM_RESTART_COUNT", "0")),
        node=os.environ.get("SLURMD_NODENAME", ""),
        train_step=began_at,
    )
    for train_step in run.train_steps(1_000_000):
        time.sleep(TRAIN_STEP_S)
        state.train_step += 1
        assert state.train_step == train_step
        log.say("train_step", train_step=train_step)
        run.log(done=train_step)
        if (FOLDER / "fail").exists():
            (FOLDER / "fail").unlink()
            sys.exit(1)
        if (FOLDER / "finish").exists():
            break
    run.finish(done=state.train_step)
    log.say("end", train_step=state.train_step)


if __name__ == "__main__":
    main()
