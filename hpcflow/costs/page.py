"""Write a cost report as one HTML page that works without network and scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hpcflow.costs import words
from hpcflow.costs.checkpoint_costs import CheckpointCosts
from hpcflow.costs.page_tables import all_table, kept_table, shares_table, worst_table
from hpcflow.costs.pictures import pictures
from hpcflow.costs.plots import require_matplotlib
from hpcflow.costs.report import Line, Report
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
    """Return the page as HTML; InputError if matplotlib is not installed."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    require_matplotlib()
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
