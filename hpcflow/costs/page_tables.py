"""The tables of a cost page, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcflow.costs import words
from hpcflow.costs.checkpoint_costs import CheckpointCosts
from hpcflow.costs.report import Line, Report
from hpcflow.costs.showback import showback
from hpcflow.costs.storage import StorageLine
from hpcflow.costs.wasted import WastedRun
from hpcflow.ledger.rows import BilledRow


@dataclass(frozen=True)
class Row:
    """Names, numbers, and remarks."""

    texts: Sequence[str]
    numbers: Sequence[str]
    remarks: Sequence[str] = ()
    is_sum: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a page; omitted if it has no rows."""

    title: str
    caption: str
    texts: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Row]
    remarks: Sequence[str] = ()


def worst_table(worst: Sequence[WastedRun]) -> Table:
    return Table(
        "Most wasteful runs",
        "The worst first: by cost, or by GPU hours if part of the waste has no price.",
        ("Run", "Project", "User"),
        ("Wasted USD", "GPU hours", "Hours", "Share of hours"),
        [
            Row(
                (each.run_id, each.project, each.user),
                (
                    "?" if each.wasted_usd is None else f"{each.wasted_usd:,.2f}",
                    f"{each.wasted_gpu_hours:,.2f}",
                    f"{each.wasted_hours:,.2f}",
                    words.percent(each.share, 1),
                ),
                (f"{each.why}: {each.next_action}",),
            )
            for each in worst
        ],
        ("Why, and what to do",),
    )


def shares_table(rows: Sequence[BilledRow]) -> Table:
    """Return the table of users' shares of each project; empty for a single user."""
    if len({row.user for row in rows}) < 2:
        return Table("", "", (), (), ())
    lines = []
    for team in showback(rows):
        of = "" if team.unit.name == "USD" else f" of the {team.unit.name}"
        members = [(each.user, each.line, each.share) for each in team.members]
        lines += [
            Row(
                (team.name or "-", user),
                (
                    f"{line.runs:,}",
                    f"{line.gpu_hours:,.2f}",
                    words.usd(line),
                    "" if share is None else words.percent(share, 1) + of,
                ),
                is_sum=line is team.total,
            )
            for user, line, share in [*members, ("all", team.total, None)]
        ]
    return Table(
        "Usage of each project by user",
        "Shares of the cost, or of the hours if part of a project has no price.",
        ("Project", "User"),
        ("Runs", "GPU hours", "USD", "Share"),
        lines,
    )


def kept_table(kept: CheckpointCosts) -> Table:
    """Return the table of checkpoints, if they have a price."""
    found = kept.report

    def row(line: StorageLine, names: Sequence[str]) -> Row:
        numbers = (line.gb_months, line.storage_usd, line.gb, line.egress_usd, line.cost_usd)
        texts = [f"{float(number):,.2f}" for number in numbers]
        return Row(names, texts, is_sum=line is found.total)

    lines = [row(line, [*(name or "-" for name in line.by), line.place]) for line in found.lines]
    total = row(found.total, ["all", *[""] * len(found.keys)])
    return Table(
        "Stored and fetched checkpoints",
        "Not included in the bills of jobs.",
        [*_titles(found.keys), "In"],
        ("GB-months", "Storage USD", "GB fetched", "Fetching USD", "USD"),
        [*lines, total] if lines else [],
    )


def all_table(found: Report, said: str) -> Table:
    """Return the table of all lines of a report, and their sum."""
    has_su = found.total.cost_su is not None
    numbers = (
        *("Runs", "Attempts", "GPU hours", "Hours", "USD", *(["SU"] if has_su else [])),
        *("Wasted USD", "Saved USD", "No price", "Estimated"),
    )

    def row(line: Line, names: Sequence[str], *, is_sum: bool = False) -> Row:
        has_usd = line.cost_usd is not None
        return Row(
            names,
            (
                f"{line.runs:,}",
                f"{line.attempts:,}",
                f"{line.gpu_hours:,.2f}",
                f"{line.hours:,.2f}",
                words.usd(line),
                *([words.su(line)] if has_su else []),
                f"{line.wasted_usd:,.2f}" if has_usd else "",
                f"{line.saved_usd:,.2f}" if line.saved_usd else "",
                f"{line.unpriced:,}" if line.unpriced else "",
                f"{line.unsure:,}" if line.unsure else "",
            ),
            is_sum=is_sum,
        )

    lines = [row(line, [name or "-" for name in line.by]) for line in found.lines]
    total = row(found.total, ["all", *[""] * (len(found.keys) - 1)], is_sum=True)
    return Table(
        f"All, by {said}",
        "The most expensive first.",
        _titles(found.keys),
        numbers,
        [*lines, total] if lines else [],
    )


def _titles(keys: Sequence[str]) -> list[str]:
    return [key.replace("_", " ").capitalize() for key in keys]
