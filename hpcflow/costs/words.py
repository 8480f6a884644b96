"""The sentences beside the numbers of a report, on a terminal and on a page."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from hpcflow.costs.checkpoint_costs import CheckpointCosts
from hpcflow.costs.report import Line
from hpcflow.model.units import counted

#: The numbers of a report, for readers of a page alone. docs/costs.md has more about them.
MEANINGS: Final = (
    (
        "GPU hours",
        "Allocated GPUs × hours of jobs, by Slurm's accounting, of all attempts: also of "
        "preempted, failed and cancelled ones.",
    ),
    ("USD, SU", "Allocation × time × the price in the site file at that time."),
    ("?", "Unknown: the partition has no price. The usage is counted in hours, never as 0."),
    ("~", "Part of it is an estimate, or has no bill yet."),
    (
        "Wasted",
        "Time before programs trained; work after the last checkpoint of an attempt that did not "
        "complete, which must be repeated; all of an attempt that left no checkpoint.",
    ),
    (
        "Saved",
        "By preemptible partitions: the cost of the same usage in the first partition of the site "
        "with the same GPUs and without preemption, minus the bill.",
    ),
    (
        "GB-months",
        "Stored checkpoints: bytes × time, in 10⁹ bytes × 730 hours, by the records of their "
        "creation and removal.",
    ),
    ("GB fetched", "10⁹ bytes of checkpoints and small files that were fetched from a store."),
    ("Month", "The month of the end of an attempt, in UTC."),
)


def notes(total: Line) -> list[str]:
    """Return what is uncertain about a sum."""
    return [
        f"{count} of {counted(total.attempts, 'attempt')} {said}"
        for count, said in (
            (
                total.unpriced,
                "without a price in their site's file: counted in hours, not in money",
            ),
            (total.estimated, "not in accounting: estimated from what their jobs reported (~)"),
            (total.unbilled, "ended just now: not billed yet (~)"),
            (total.running, "running: counted by the time so far (~)"),
        )
        if count
    ]


def notes_of_keeping(found: CheckpointCosts) -> list[str]:
    """Return what is unknown about stored and fetched checkpoints."""
    facts, total = found.facts, found.report.total
    unpriced = [
        f"{float(amount):,.2f} {what} are from a time without a price in the site file"
        for amount, what in (
            (total.unpriced_gb_months, "GB-months"),
            (total.unpriced_gb, "GB fetched"),
        )
        if amount
    ]
    return unpriced + [
        f"{count} {said}"
        for count, said in (
            (
                len(facts.lost_runs),
                "runs have no records left, or no link in your home: only their checkpoints in a "
                "store count, as far as the ledger knows them",
            ),
            (
                facts.lost_checkpoints,
                "checkpoints left scratch at an unknown time and are not counted",
            ),
            (
                facts.lost_fetches,
                "fetched checkpoints have no recorded size and are not counted",
            ),
        )
        if count
    ]


def usd(line: Line, *, digits: str = ",.2f") -> str:
    """Return the bill of a line: ``~12.50``; ``?`` without a price."""
    about = "~" if line.unsure else ""
    return "?" if line.cost_usd is None else f"{about}{line.cost_usd:{digits}}"


def su(line: Line) -> str:
    """Return the service units of a line; empty without any."""
    return "" if line.cost_su is None else f"{line.cost_su:,.2f}"


def percent(part: Decimal | float, whole: Decimal | float | None) -> str:
    """Return ``12.5 %``; empty if ``whole`` is 0 or None."""
    return f"{float(part) / float(whole):.1%}".replace("%", " %") if whole else ""
