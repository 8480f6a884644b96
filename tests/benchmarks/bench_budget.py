"""What a budget costs whoever sends: one that has seen ten thousand attempts, and a thousand."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any, Final

from hpcflow.budgets.amounts import Amounts
from hpcflow.budgets.budget_check import Pledge
from hpcflow.budgets.commitments import commit
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Limit, Opening, Terms, entry_line
from hpcflow.budgets.scope import Scope
from hpcflow.clock import SystemClock
from hpcflow.model.ids import ID_ALPHABET
from tests.benchmarks.timing import Row

_SCOPE: Final = Scope("project", "vision")
_TAKES: Final = Amounts(Decimal("12.5"), None, Decimal(4))
_ROUNDS: Final = 7
_NOW: Final = SystemClock().now()
_MORE: Final[dict[str, dict[str, Any]]] = {
    "committed": {"limit_s": 14_400},
    "began": {"began_at": _NOW},
    "settled": {"ended_at": _NOW + timedelta(hours=2), "is_final": True},
}


def rows() -> list[Row]:
    """Measure; each round commits one attempt more."""
    return [_one(1_000), _one(10_000), _array()]


def _one(attempts: int) -> Row:
    with tempfile.TemporaryDirectory() as path:
        folder = _filled(Path(path), attempts)
        taken = [_timed(folder, [_pledge("new", number)]) for number in range(_ROUNDS)]
        size_mb = folder.file(_SCOPE).stat().st_size / 2**20
    what = f"one attempt is checked and committed, by a budget of {attempts:,} attempts"
    goal_s = 0.5
    return Row(
        what,
        f"{median(taken) * 1000:.1f} ms, the first time {taken[0] * 1000:.0f} ms "
        f"({size_mb:.1f} MB of lines)",
        f"at most {goal_s} s",
        taken[0] <= goal_s,  # each submission is a process of its own
    )


def _array() -> Row:
    with tempfile.TemporaryDirectory() as path:
        folder = _filled(Path(path), 1_000)
        took = _timed(folder, [_pledge("task", number) for number in range(1_000)])
    return Row(
        "1,000 attempts of an array are checked and committed at once",
        f"{took:.2f} s",
        "at most 2 s",
        took <= 2,
    )


def _timed(folder: BudgetFolder, pledges: list[Pledge]) -> float:
    begin = time.perf_counter()
    commit(folder, pledges, SystemClock())
    return time.perf_counter() - begin


def _pledge(name: str, number: int) -> Pledge:
    return Pledge(_run_id(name, number), 1, "ada", (_SCOPE,), _TAKES, 14_400, "gpu")


def _run_id(name: str, number: int) -> str:
    return f"{name}-20260301-{''.join(ID_ALPHABET[int(digit)] for digit in f'{number:08d}')}"


def _filled(path: Path, attempts: int) -> BudgetFolder:
    """A budget with so many attempts, all of which were settled twice."""
    folder, now = BudgetFolder(path), _NOW
    terms = Terms({"cost_usd": Limit(Decimal(10**9), Decimal(10**8))})
    opening = Opening(replace(_TAKES, cost_usd=Decimal(0)))
    lines = [Change(now, "ada", terms, opening=opening).to_line()]
    for number in range(attempts):
        run_id = _run_id("digits", number)
        for record in ("committed", "began", "settled", "settled"):
            more = _MORE[record]
            lines.append(entry_line(record, now, "ada", run_id, 1, amounts=_TAKES, **more))
    with folder.lock():
        folder.append(_SCOPE, lines)
    return folder
