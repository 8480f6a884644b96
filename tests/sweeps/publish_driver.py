"""Publishes sweeps in processes that are killed before they first change anything, at their second
change, …

``python -m tests.sweeps.publish_driver FOLDER LEDGER``: a process that publishes sweep number N is
killed at change N, and so is one that publishes it again with news; after each it is published by
one that nobody kills. N begins by chance and goes on in steps. The driver prints the last N at
which any was killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, event

import hpcflow.sweeps.published.database  # imported once, before the forks  # noqa: F401
from tests.sweeps.publishing import Searched

#: Each time others of the changes: all of them take a minute.
STRIDE: Final = 4


def killed_at(sweep: Searched, change: int) -> bool:
    """Publish in a process that kills itself before a change; whether it came so far."""
    child = os.fork()
    if child == 0:
        _count_and_kill(change)
        said = sweep.publish()
        sys.stderr.write(said or "")
        os._exit(0 if said is None else 1)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("it warned, where it should have been killed or be done")
    return os.WIFSIGNALED(status)


def _count_and_kill(last: int) -> None:
    """Reading changes nothing: who is killed there might as well be killed at the next change."""
    changes = 0

    def count(*given: Any) -> None:
        nonlocal changes
        if len(given) > 1 and given[2].split()[0] in ("SELECT", "PRAGMA"):
            return
        changes += 1
        if changes == last:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)


def sweep_of(folder: Path, ledger: str, number: int) -> Searched:
    """The sweep that is published by a process that is killed at one change."""
    mine = folder / str(number)
    return Searched(mine, ledger.format(folder=mine), name=f"search{number}")


def first(sweep: Searched) -> None:
    """What is published at first."""
    sweep.grows(6)


def later(sweep: Searched) -> None:
    """What is new when it is published again."""
    sweep.reports(0, (11, 0.9), (12, None))
    sweep.tells(4, "complete", 0.75)
    sweep.grows(3)


def main() -> None:
    folder, ledger = Path(sys.argv[1]), sys.argv[2]
    number, any_killed = random.randrange(STRIDE) + 1, True
    while any_killed:
        number, any_killed = number + STRIDE, False
        sweep = sweep_of(folder, ledger, number)
        for step in (first, later):
            step(sweep)
            any_killed |= killed_at(sweep, number)
            if killed_at(sweep, sys.maxsize):
                raise SystemExit("it was killed by somebody else")
    print(number - STRIDE)


if __name__ == "__main__":
    main()
