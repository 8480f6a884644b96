"""Print a cost report as a table, as CSV or as JSON."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, TypedDict, cast

from hpcflow.cli.columns import Cell, Column, painted, print_table
from hpcflow.terminal import Styled, echo, safe

if TYPE_CHECKING:
    from hpcflow.costs.checkpoint_costs import StorageLine, StorageReport
    from hpcflow.costs.report import Line, Report


class CostBy(TypedDict, total=False):
    """The keys of a line that were asked for."""

    project: str
    user: str
    run: str
    sweep: str
    partition: str
    account: str
    gpu_type: str
    month: str
    cause: str


class CostAmounts(TypedDict):
    """What some attempts used; money is text, and null if unknown."""

    runs: int
    attempts: int
    hours: float
    gpu_hours: float
    cost_usd: str | None
    cost_su: str | None
    wasted_usd: str | None
    wasted_su: str | None
    wasted_gpu_hours: float
    wasted_hours: float
    saved_usd: str | None
    unpriced: int
    estimated: int
    unbilled: int
    running: int


class CostLine(CostBy, CostAmounts):
    """A line of a report: its keys, and what those attempts used."""


class StorageValues(CostBy):
    """The cost of storing checkpoints in a place, and of fetching them; decimal texts."""

    place: str
    gb_months: str
    storage_usd: str
    gb: str
    egress_usd: str
    cost_usd: str
    unpriced_gb_months: str
    unpriced_gb: str


def values(found: Report, line: Line) -> CostLine:
    by = dict(zip(found.keys, line.by, strict=True))
    return cast("CostLine", {**by, **amounts(line)})


def amounts(line: Line) -> CostAmounts:
    """Return the numbers of a line: money as text, with all digits."""

    def shown(value: object) -> object:
        if isinstance(value, Decimal):
            return f"{value:.8f}"
        return round(value, 6) if isinstance(value, float) else value

    found = {name: shown(getattr(line, name)) for name in CostAmounts.__annotations__}
    return cast("CostAmounts", found)


def storage_values(found: StorageReport, line: StorageLine) -> StorageValues:
    from hpcflow.costs.checkpoint_costs import decimal

    keys = dict(zip(found.keys, line.by, strict=True))
    amounts = {
        name: f"{decimal(getattr(line, name)):f}"
        for name in (
            *("gb_months", "storage_usd", "gb", "egress_usd", "cost_usd"),
            *("unpriced_gb_months", "unpriced_gb"),
        )
    }
    return cast("StorageValues", {**keys, "place": line.place, **amounts})


def as_csv(found: Report, kept: StorageReport) -> str:
    """Return a report for a spreadsheet: all digits, no total.

    Checkpoints that have a price have their own lines, which name their place.
    """
    rows: list[Mapping[str, object]] = [values(found, line) for line in found.lines]
    names = list(values(found, found.total))
    if kept.lines:
        more = [storage_values(kept, line) for line in kept.lines]
        names += [name for name in more[0] if name not in names]
        rows += more
    return csv_text(names, rows)


def csv_text(names: Iterable[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: plain(value) for name, value in row.items()} for row in rows])
    return text.getvalue()


def plain(value: object) -> object:
    """Make a text safe for spreadsheets and terminals.

    It contains no control characters. A formula becomes text, also with full-width characters.
    """
    if not isinstance(value, str):
        return value
    text = safe(value)
    is_formula = unicodedata.normalize("NFKC", text[:1]) in ("=", "+", "-", "@")
    return f"'{text}" if is_formula and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdecimal()


def print_storage(kept: StorageReport) -> None:
    if not kept.lines:
        return

    def row(line: StorageLine, names: Sequence[str]) -> list[Styled]:
        amounts = (line.gb_months, line.storage_usd, line.gb, line.egress_usd)
        numbers = [f"{float(amount):.2f}" for amount in amounts]
        return painted([*names, *numbers], bold=line is kept.total or None)

    rows = [row(line, [*(name or "-" for name in line.by), line.place]) for line in kept.lines]
    rows.append(row(kept.total, ["total", *[""] * len(kept.keys)]))
    columns = [
        *(Column(key.upper()) for key in (*kept.keys, "checkpoints in")),
        *Column.numbers("GB-MONTHS 1, USD, GB FETCHED 2, USD"),
    ]
    echo()
    print_table(columns, rows)


def print_report(found: Report) -> None:
    from hpcflow.costs.words import notes, usd

    has_su = found.total.cost_su is not None

    def row(line: Line, names: Sequence[str]) -> Sequence[Cell]:
        su = [f"{line.cost_su:.2f}" if line.cost_su is not None else ""] if has_su else []
        numbers = [
            str(line.runs),
            str(line.attempts),
            f"{line.gpu_hours:.2f}",
            usd(line, digits=".2f"),
            *su,
            f"{line.wasted_usd:.2f}" if line.cost_usd is not None else "",
            f"{line.saved_usd:.2f}" if line.saved_usd else "",
        ]
        cells = [*names, *numbers]
        return painted(cells, bold=True) if line is found.total else cells

    rows = [row(line, [name or "-" for name in line.by]) for line in found.lines]
    rows.append(row(found.total, ["total", *[""] * (len(found.keys) - 1)]))
    columns = [
        *(Column(key.upper()) for key in found.keys),
        *Column.numbers("RUNS 4, ATTEMPTS 3, GPU_H, USD"),
        *(Column.numbers("SU") if has_su else []),
        *Column.numbers("WASTED 1, SAVED 2"),
    ]
    print_table(columns, rows)
    for note in notes(found.total):
        echo(note)
