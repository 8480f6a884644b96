"""Find the runs that wasted the most, the cause, and what to do about it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from hpcflow.costs.report import Line, add
from hpcflow.errors import shell_word
from hpcflow.ledger.rows import BilledRow, Known
from hpcflow.ledger.waste import waste_of
from hpcflow.model.state import Cause

#: Ends caused by the program or its resources: a repetition would end the same way.
_OWN_FAULT: Final = frozenset(
    each.value for each in (Cause.FAILED, Cause.LAUNCH_FAILED, Cause.OUT_OF_MEMORY, Cause.STALLED)
)


@dataclass(frozen=True)
class WastedRun:
    """The waste of one run.

    Attributes:
        wasted_hours: of its jobs, whatever their nodes; ``wasted_gpu_hours`` of their GPUs.
        wasted_usd, wasted_su: None if nothing of it has such a price.
        share: of all hours of its jobs, from 0 to 1.
        startup_hours: of ``wasted_hours``, before its program trained.
        lost_hours: after the last checkpoints of attempts that did not complete.
        unsaved_hours: in attempts that left no checkpoint.
        why: the largest of the three, in words.
        next_action: what to do about it, and what to type.
    """

    run_id: str
    project: str
    user: str
    attempts: int
    wasted_usd: Decimal | None
    wasted_su: Decimal | None
    wasted_gpu_hours: float
    wasted_hours: float
    share: float
    startup_hours: float
    lost_hours: float
    unsaved_hours: float
    why: str
    next_action: str


def most_wasted(
    rows: Iterable[BilledRow], top: int, find: Callable[[Sequence[str]], Mapping[str, Known]]
) -> list[WastedRun]:
    """Return the ``top`` runs that wasted the most, the worst first.

    The order is by money if all waste has a price, else by GPU hours, then by hours.

    Args:
        find: returns the ledger's rows of some runs.
    """
    by_run: dict[str, list[BilledRow]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    sums = {run_id: _sum(some) for run_id, some in by_run.items() if any(r.wasted_s for r in some)}
    has_price = all(line.cost_usd is not None and not line.unpriced_usd for line in sums.values())

    def worst_first(run_id: str) -> tuple[Decimal, float, float, str]:
        line = sums[run_id]
        usd = line.wasted_usd if has_price else Decimal(0)
        return (-usd, -line.wasted_gpu_hours, -line.wasted_hours, run_id)

    worst = sorted(sums, key=worst_first)[:top]
    known = find(worst)
    return [_explained(by_run[run_id], sums[run_id], known.get(run_id)) for run_id in worst]


def _sum(rows: Sequence[BilledRow]) -> Line:
    line = Line(())
    for row in rows:
        add(line, row)
    return line


def _explained(rows: Sequence[BilledRow], line: Line, known: Known | None) -> WastedRun:
    first, numbers = rows[0], {row.attempt for row in rows}
    parts = {"startup": 0.0, "lost": 0.0, "unsaved": 0.0}
    causes: dict[str, Counter[str]] = defaultdict(Counter)
    for attempt in known.attempts if known is not None else ():
        if attempt.attempt not in numbers:
            continue
        waste = waste_of(attempt.journal.get("accounted", {}), attempt.cause, attempt.report)
        if waste is not None:
            for name, seconds in zip(
                parts, (waste.startup_s, waste.lost_s, waste.unsaved_s), strict=True
            ):
                parts[name] += seconds / 3600
                if seconds:
                    causes[name][attempt.cause or ""] += 1
    most = max(parts, key=lambda name: parts[name])
    why, next_action = _advice(most if parts[most] else "", causes[most], first.run_id)
    return WastedRun(
        run_id=first.run_id,
        project=first.project,
        user=first.user,
        attempts=line.attempts,
        wasted_usd=line.wasted_usd if line.cost_usd is not None else None,
        wasted_su=line.wasted_su if line.cost_su is not None else None,
        wasted_gpu_hours=line.wasted_gpu_hours,
        wasted_hours=line.wasted_hours,
        share=line.wasted_hours / line.hours if line.hours else 0.0,
        startup_hours=parts["startup"],
        lost_hours=parts["lost"],
        unsaved_hours=parts["unsaved"],
        why=why,
        next_action=next_action,
    )


def _advice(part: str, causes: Counter[str], run_id: str) -> tuple[str, str]:
    """Return what is wrong and what to do, by the largest part of the waste."""
    run = shell_word(run_id)
    ends = ", ".join(f"{count} × {cause}" for cause, count in causes.most_common())
    if part == "unsaved" and _OWN_FAULT & causes.keys():
        return (
            f"it ended before its first checkpoint ({ends})",
            f"see why, before it is resubmitted: hpcflow logs {run}",
        )
    if part == "unsaved":
        return (
            f"it ended before its first checkpoint ({ends})",
            "save earlier, with `checkpoint: {interval: auto}` in its config; see when it ended: "
            f"hpcflow history {run}",
        )
    if part == "lost":
        return (
            f"it worked on after its last checkpoint ({ends})",
            "save more often, or on notice, with `checkpoint: {interval: auto}` in its config; see "
            f"what was lost: hpcflow history {run}",
        )
    if not part:
        return ("the cause is not in the ledger", f"look at it: hpcflow history {run}")
    return (
        "its start took long",
        "see what it does before its first train step: imports, data, compiling; "
        f"hpcflow history {run}",
    )
