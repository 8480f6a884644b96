"""Projectors are killed, and run at the same time, while files grow: nothing is lost or doubled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hpcflow.ledger.store import Ledger
from hpcflow.model.state import Cause
from hpcflow.projection import catch_up, check, rebuild
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import list_runs
from tests.ledger import lines as say
from tests.projection.files import everything, grow, new_run

# Follows a home for ever; says so before every pass.
PROJECTOR = """
import sys
from pathlib import Path
from hpcflow.ledger.store import open_ledger
from hpcflow.projection import catch_up
from hpcflow.storage.layout import Home
from hpcflow.storage.runs import list_runs
home = Home(Path(sys.argv[2]))
with open_ledger(sys.argv[1]) as ledger:
    while True:
        print("pass", flush=True)
        catch_up(ledger, list_runs(home))
"""


def start_projector(ledger_url: str, home: Home) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", PROJECTOR, ledger_url, str(home.path)]
    projector = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert projector.stdout is not None
    projector.stdout.readline()
    return projector


def grow_all(run_dirs: list[RunDir], number: int) -> None:
    """A little of everything, and the beginning of a line, the same of all, for the next call."""
    for run_dir in run_dirs:
        events = run_dir.attempt(1).events
        line = say.progress(number, number, loss=1 / (number + 1))
        grow(events, line[9:] if number else b"", say.checkpoint(number), line[:9])
        grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, number) if number % 2 else b"x\n")


def agrees(ledger: Ledger, run_dirs: list[RunDir]) -> bool:
    catch_up(ledger, run_dirs)
    followed = everything(ledger, run_dirs)
    assert check(ledger, run_dirs) == []
    rebuild(ledger, run_dirs)
    return bool(everything(ledger, run_dirs) == followed)


def test_killed_at_any_moment_it_goes_on_where_it_was(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    run_dirs = [new_run(tmp_path) for _ in range(3)]
    for run_dir in run_dirs:
        grow(run_dir.journal, say.intended(1), say.submitted(1))
    number = 0
    for kill_after in (1, 5, 17, 40):
        projector = start_projector(ledger_url, home)
        for _ in range(kill_after):
            grow_all(run_dirs, number)
            number += 1
        projector.kill()
        projector.wait()
        assert projector.stdout is not None
        projector.stdout.close()
    assert agrees(ledger, run_dirs)
    assert {run.train_step for run in ledger.runs()} == {number - 1}
    assert len(ledger.checkpoints([run_dirs[0].path.name])) == number


def test_two_at_once_count_nothing_twice(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    run_dirs = [new_run(tmp_path) for _ in range(3)]
    for run_dir in run_dirs:
        grow(run_dir.journal, say.intended(1), say.submitted(1))
    projectors = [start_projector(ledger_url, home) for _ in range(2)]
    for number in range(60):
        grow_all(run_dirs, number)
    for projector in projectors:
        assert projector.poll() is None, "a projector gave up"
        projector.kill()
        projector.wait()
        assert projector.stdout is not None
        projector.stdout.close()
    assert len(list_runs(home)) == 3
    assert agrees(ledger, run_dirs)
    (known,) = ledger.known([run_dirs[0].path.name]).values()
    assert {source.path: source.skipped_lines for source in known.sources} == {
        "attempts/0001/events.jsonl": 0,
        "journal.jsonl": 30,
    }
