"""A report as one page that needs nothing but a browser: no network, no script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hpcflow.costs import words
from hpcflow.costs.keeping import Keeping
from hpcflow.costs.pictures import pictures
from hpcflow.costs.plots import require_matplotlib
from hpcflow.costs.report import Line, Report
from hpcflow.costs.showback import showback
from hpcflow.costs.storage import StorageLine
from hpcflow.costs.wasted import WastedRun
from hpcflow.errors import InputError, Where
from hpcflow.ledger.rows import BilledRow
from hpcflow.resources import resource_dir
from hpcflow.storage.files import write_durably


@dataclass(frozen=True)
class Content:
    """What a page is about.

    Attributes:
        rows: what ``found`` is a report of.
        since: None for everything up to ``until``.
        only: what the rows were chosen by: ``project`` -> its name.
        worst: the runs that wasted the most.
        kept: what checkpoints cost, where a site prices that.
    """

    rows: Sequence[BilledRow]
    found: Report
    since: datetime | None
    until: datetime
    now: datetime
    only: dict[str, str]
    worst: Sequence[WastedRun]
    kept: Keeping


@dataclass(frozen=True)
class _Card:
    name: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class _Row:
    texts: Sequence[str]
    numbers: Sequence[str]
    remarks: Sequence[str] = ()
    is_sum: bool = False


@dataclass(frozen=True)
class _Table:
    title: str
    caption: str
    texts: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[_Row]
    remarks: Sequence[str] = ()


def page(content: Content) -> str:
    """The page as HTML.

    Raises:
        InputError: matplotlib, which draws its plots, is not installed.
    """
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
        title="What it cost",
        about=_about(content, said),
        cards=[*_cards(found.total), *_cards_of_keeping(content.kept)],
        notes=words.notes(found.total) + words.notes_of_keeping(content.kept),
        plots=pictures(content.rows, found, said),
        tables=[
            each
            for each in (
                _worst(content.worst),
                _shares(content.rows),
                _kept(content.kept),
                _all(found, said),
            )
            if each.rows
        ],
        words=words.MEANINGS,
    )


def write_page(text: str, path: Path) -> Path:
    """Put a page at ``path``, whole, for its owner alone; returns the whole of the path.

    Raises:
        InputError: no file can be there.
        StorageError: it cannot be written.
    """
    whole = path.absolute()
    is_folder = os.path.isdir(whole)  # noqa: PTH112 - pathlib raises where a name is too long
    if is_folder or not os.path.isdir(whole.parent):  # noqa: PTH112
        wrong = f"{whole} is a folder" if is_folder else f"there is no folder {whole.parent}"
        raise InputError(
            wrong,
            where=Where(key="--html"),
            next_action="name a file in a folder that exists: --html costs.html",
        )
    # A name that is no UTF-8 came from a file system: it can be shown, if not as it is.
    write_durably(whole, text.encode("utf-8", "replace"))
    return whole


def _printable(value: Any) -> Any:
    """A name as it can be shown; what is marked up is left as it is."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return words.printable(value) if is_text else value


def _about(content: Content, said: str) -> str:
    begin = "the first" if content.since is None else f"{content.since:%Y-%m-%d %H:%M}"
    end = min(content.until, content.now)
    only = "".join(f", {key} {value} alone" for key, value in content.only.items())
    return (
        f"Attempts that ended from {begin} to {end:%Y-%m-%d %H:%M}{only}, by {said}. "
        f"Written at {content.now:%Y-%m-%d %H:%M}. All times are UTC."
    )


def _cards(total: Line) -> list[_Card]:
    has_usd = total.cost_usd is not None
    in_vain = (
        f"{total.wasted_gpu_hours:,.2f} GPU hours; "
        f"{words.percent(total.wasted_hours, total.hours) or '0 %'} of all hours"
    )
    wasted = f"{total.wasted_usd:,.2f}" if has_usd else "?"
    of_runs = f"{total.runs:,} runs, {total.attempts:,} attempts"
    of_jobs = f"{total.hours:,.2f} hours of jobs"
    units = [_Card("Service units", words.su(total))] if total.cost_su is not None else []
    return [
        _Card("Spent", words.usd(total), "USD", of_runs),
        *units,
        _Card("GPU hours", f"{total.gpu_hours:,.2f}", "", of_jobs),
        _Card("Wasted", wasted, "USD", in_vain),
        _Card("Saved", f"{total.saved_usd:,.2f}", "USD", "by preemptible partitions"),
        _Card("Estimated", f"{total.unsure:,}", "", "attempts that accounting has not told of"),
        _Card("Without a price", f"{total.unpriced:,}", "", "attempts, counted in hours"),
    ]


def _cards_of_keeping(kept: Keeping) -> list[_Card]:
    total = kept.report.total
    if not kept.report.lines:
        return []
    note = f"{float(total.gb_months):,.2f} GB-months kept, {float(total.gb):,.2f} GB fetched"
    return [_Card("Checkpoints", f"{float(total.cost_usd):,.2f}", "USD", note)]


def _kept(kept: Keeping) -> _Table:
    found = kept.report

    def row(line: StorageLine, names: Sequence[str]) -> _Row:
        numbers = (line.gb_months, line.storage_usd, line.gb, line.egress_usd, line.cost_usd)
        texts = [f"{float(number):,.2f}" for number in numbers]
        return _Row(names, texts, is_sum=line is found.total)

    lines = [row(line, [*(name or "-" for name in line.by), line.place]) for line in found.lines]
    total = row(found.total, ["all", *[""] * len(found.keys)])
    return _Table(
        "Checkpoints that were kept and fetched",
        "Beside the bills of jobs, and not in them.",
        [*_titles(found.keys), "In"],
        ("GB-months", "Keeping USD", "GB fetched", "Fetching USD", "USD"),
        [*lines, total] if lines else [],
    )


def _titles(keys: Sequence[str]) -> list[str]:
    return [key.replace("_", " ").capitalize() for key in keys]


def _worst(worst: Sequence[WastedRun]) -> _Table:
    return _Table(
        "What wasted the most",
        "Runs, the worst first: by money or, where not all of it has a price, by GPU hours.",
        ("Run", "Project", "User"),
        ("Wasted USD", "GPU hours", "Hours", "Of its hours"),
        [
            _Row(
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


def _shares(rows: Sequence[BilledRow]) -> _Table:
    """Who used how much of each project; nothing where there is one user alone."""
    if len({row.user for row in rows}) < 2:
        return _Table("", "", (), (), ())
    lines = []
    for team in showback(rows):
        of = "" if team.unit.name == "USD" else f" of the {team.unit.name}"
        members = [(each.user, each.line, each.share) for each in team.members]
        lines += [
            _Row(
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
    return _Table(
        "Who used how much of each project",
        "Shares of the money; of the hours where not all of a project has a price.",
        ("Project", "User"),
        ("Runs", "GPU hours", "USD", "Share"),
        lines,
    )


def _all(found: Report, said: str) -> _Table:
    has_su = found.total.cost_su is not None
    numbers = (
        *("Runs", "Attempts", "GPU hours", "Hours", "USD", *(["SU"] if has_su else [])),
        *("Wasted USD", "Saved USD", "No price", "Estimated"),
    )

    def row(line: Line, names: Sequence[str], *, is_sum: bool = False) -> _Row:
        has_usd = line.cost_usd is not None
        return _Row(
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
    return _Table(
        f"All, by {said}",
        "The dearest first.",
        _titles(found.keys),
        numbers,
        [*lines, total] if lines else [],
    )
