"""Write a cost report as one HTML page that works without network and scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hpcflow.costs import words
from hpcflow.costs.checkpoint_costs import CheckpointCosts, StorageLine
from hpcflow.costs.pictures import pictures
from hpcflow.costs.report import Line, Report, showback
from hpcflow.costs.wasted import WastedRun
from hpcflow.errors import InputError, Where
from hpcflow.ledger.rows import BilledRow
from hpcflow.resources import resource_dir
from hpcflow.runtime.safe_text import safe
from hpcflow.storage.files import write_durably


@dataclass(frozen=True)
class Content:
    """The content of a page.

    Attributes:
        rows: the rows of the report ``found``.
        since: None for everything up to ``until``.
        only: the filters of the rows: ``project`` -> its name.
        worst: the runs that wasted the most.
        kept: the cost of checkpoints, if a site prices it.
    """

    rows: Sequence[BilledRow]
    found: Report
    since: datetime | None
    until: datetime
    now: datetime
    only: dict[str, str]
    worst: Sequence[WastedRun]
    kept: CheckpointCosts


@dataclass(frozen=True)
class _Card:
    name: str
    value: str
    unit: str = ""
    note: str = ""


def page(content: Content) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = content.found
    said = " and ".join(key.replace("_", " ") for key in found.keys)
    environment = Environment(
        loader=FileSystemLoader(str(resource_dir("templates"))),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
    )
    return environment.get_template("pages/costs.html").render(
        title="Costs",
        about=_about(content, said),
        cards=[*_cards(found.total), *_checkpoint_cards(content.kept)],
        notes=words.notes(found.total) + words.notes_of_keeping(content.kept),
        plots=pictures(content.rows, found, said),
        tables=[
            each
            for each in (
                worst_table(content.worst),
                shares_table(content.rows),
                kept_table(content.kept),
                all_table(found, said),
            )
            if each.rows
        ],
        words=words.MEANINGS,
    )


def write_page(text: str, path: Path) -> Path:
    """Write a page to ``path``, readable by its owner only; return the absolute path.

    Raises:
        InputError: no file can be there.
    """
    whole = path.absolute()
    is_folder = os.path.isdir(whole)  # noqa: PTH112 - pathlib raises where a name is too long
    if is_folder or not os.path.isdir(whole.parent):  # noqa: PTH112 - as above
        wrong = f"{whole} is a folder" if is_folder else f"there is no folder {whole.parent}"
        raise InputError(
            wrong,
            where=Where(key="--html"),
            next_action="name a file in a folder that exists: --html costs.html",
        )
    # A name from a file system may be invalid UTF-8: show it with replacements.
    write_durably(whole, text.encode("utf-8", "replace"))
    return whole


def _printable(value: Any) -> Any:
    """Return a name in printable form; markup is unchanged."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return safe(value) if is_text else value


def _about(content: Content, said: str) -> str:
    ends = [row.ended_at for row in content.rows if row.ended_at is not None]
    first = content.since or min(ends, default=None)
    begin = "the first" if first is None else f"{first:%Y-%m-%d %H:%M}"
    sites = ", ".join(sorted({row.site for row in content.rows}))
    at = f" on {sites}" if sites else ""
    end = min(content.until, content.now)
    only = "".join(f", {key} {value} only" for key, value in content.only.items())
    return (
        f"Attempts{at} that ended from {begin} to {end:%Y-%m-%d %H:%M}{only}, by {said}. "
        f"Written at {content.now:%Y-%m-%d %H:%M}. All times are UTC."
    )


def _cards(total: Line) -> list[_Card]:
    has_usd = total.cost_usd is not None
    wasted_note = (
        f"{total.wasted_gpu_hours:,.2f} GPU hours; "
        f"{words.percent(total.wasted_hours, total.hours) or '0 %'} of all hours"
    )
    wasted = f"{total.wasted_usd:,.2f}" if has_usd else "?"
    saved = f"{total.saved_usd:,.2f}" if has_usd else "?"
    of_runs = f"{total.runs:,} runs, {total.attempts:,} attempts"
    of_jobs = f"{total.hours:,.2f} hours of jobs"
    units = [_Card("Service units", words.su(total))] if total.cost_su is not None else []
    return [
        _Card("Spent", words.usd(total), "USD", of_runs),
        *units,
        _Card("GPU hours", f"{total.gpu_hours:,.2f}", "", of_jobs),
        _Card("Wasted", wasted, "USD", wasted_note),
        _Card("Saved", saved, "USD", "by preemptible partitions"),
        _Card("Estimated", f"{total.unsure:,}", "", "attempts without a bill from accounting"),
        _Card("Without a price", f"{total.unpriced:,}", "", "attempts, counted in hours"),
    ]


def _checkpoint_cards(kept: CheckpointCosts) -> list[_Card]:
    total = kept.report.total
    if not kept.report.lines:
        return []
    note = f"{float(total.gb_months):,.2f} GB-months kept, {float(total.gb):,.2f} GB fetched"
    return [_Card("Checkpoints", f"{float(total.cost_usd):,.2f}", "USD", note)]


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
