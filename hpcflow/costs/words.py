"""The sentences beside the numbers of a report, on a terminal and on a page."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from hpcflow.costs.checkpoint_costs import CheckpointCosts
from hpcflow.costs.report import Line
from hpcflow.model.units import counted

#: The numbers of a report, for people who see nothing but a page. docs/costs.md says the same, and
#: more.
MEANINGS: Final = (
    (
        "GPU hours",
        "GPUs that were allocated × hours that jobs ran, by Slurm's accounting: of all attempts, "
        "also those that were preempted, failed or were cancelled.",
    ),
    ("USD, SU", "What was allocated × time × the price in the site file that held at that time."),
    ("?", "Not known: the partition has no price. It is counted in hours, and never as 0."),
    ("~", "Some of it is an estimate, or its bill is still to come."),
    (
        "Wasted",
        "Until programs trained; what was done after the last checkpoint of an attempt that did "
        "not complete, and has to be done again; all of one that left no checkpoint.",
    ),
    (
        "Saved",
        "By being preemptible: what the same would have cost in the first partition of the site "
        "with the same GPUs where nobody is preempted, less the bill.",
    ),
    (
        "GB-months",
        "Checkpoints that were kept: bytes × time, in 10⁹ bytes × 730 hours, by what was written "
        "down when they came and went.",
    ),
    ("GB fetched", "10⁹ bytes of checkpoints and small files that were fetched from a store."),
    ("Month", "That of the end of an attempt, in UTC."),
)


def notes(total: Line) -> list[str]:
    """What is not certain about a sum."""
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
    """What nobody knows of checkpoints that were kept and fetched."""
    facts, total = found.facts, found.report.total
    unpriced = [
        f"{float(amount):,.2f} {what} are of a time that has no price in its site's file"
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
    """The bill of a line: ``~12.50``; ``?`` where there is no price."""
    about = "~" if line.unsure else ""
    return "?" if line.cost_usd is None else f"{about}{line.cost_usd:{digits}}"


def su(line: Line) -> str:
    """The same in service units; nothing where there are none."""
    return "" if line.cost_su is None else f"{line.cost_su:,.2f}"


def percent(part: Decimal | float, whole: Decimal | float | None) -> str:
    """``12.5 %``; nothing of nothing."""
    return f"{float(part) / float(whole):.1%}".replace("%", " %") if whole else ""
