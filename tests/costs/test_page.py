"""The page of a report: one file, for its owner alone, that says nothing that is not so."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hpcflow.costs.page import page, write_page
from hpcflow.costs.pictures import pictures
from hpcflow.costs.report import report
from hpcflow.errors import InputError, StorageError
from hpcflow.ledger.rows import BilledRow, PartRow
from tests.costs.billed import content, row

HOSTILE = "<script>alert(1)</script>"
PREEMPTED = {"cause": "preempted", "wasted_s": 900.0, "partition": "spot", "on_demand_usd": "18"}


@pytest.fixture
def rows() -> list[BilledRow]:
    return [
        row("a-1"),
        row("a-1", attempt=2, **PREEMPTED),
        row("b-1", project="speech", cost_usd=None, billed_by="events"),
    ]


class _Tags(HTMLParser):
    """What a page is made of, and whether every tag is closed where it should be."""

    _VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self._VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._VOID:
            assert self._open.pop() == tag


def test_it_needs_nothing_from_anywhere(rows: list[BilledRow]) -> None:
    text = page(content(rows))
    tags = _Tags(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(tags.names)
    named = {name for name, _ in tags.attributes}
    assert not {"src", "href", "srcset", "action", "data"} & named
    assert not [name for name in named if name.startswith("on")]
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert len(text) < 100_000


def test_it_names_the_sites_and_the_period_also_where_nobody_chose_one(
    rows: list[BilledRow],
) -> None:
    first = min(row.ended_at for row in rows if row.ended_at is not None)
    elsewhere = replace(rows[0], site="frontier")
    text = page(content([*rows, elsewhere]))
    sites = ", ".join(sorted({"frontier", rows[0].site}))
    assert f"Attempts on {sites} that ended from {first:%Y-%m-%d %H:%M} to " in text


def test_the_longest_bar_is_whole_and_every_part_has_its_amount_as_label(
    rows: list[BilledRow],
) -> None:
    by_project, *_ = pictures(rows, report(rows, ["project"]), "project")
    vision, speech = by_project.bars
    assert (vision.name, vision.text) == ("vision", "12.00")
    assert [(part.name, part.percent) for part in vision.parts] == [
        ("used", 87.5),
        ("wasted", 12.5),
    ]
    assert (speech.name, speech.text, speech.parts) == ("speech", "?", [])
    text = page(content(rows))
    parts = re.findall(r'<span class="part (\w+)" role="img" ([^>]*)>', text)
    label = 'aria-label="wasted: 1.50 USD" title="wasted: 1.50 USD" style="width: 12.50%"'
    assert ("wasted", label) in parts
    colours = re.findall(r"(\w+)(?:, \.(\w+))? \{ background: #", text)
    assert {name for name, _ in parts} <= {name for names in colours for name in names}


@pytest.mark.parametrize("key", ["project", "user", "partition", "cause"])
def test_a_hostile_name_is_a_text_in_tables_and_in_pictures(key: str) -> None:
    names = [HOSTILE, '"><svg onload=x>', "a\x1bb\x00c", "\N{RIGHT-TO-LEFT OVERRIDE}evil", "$x_1$"]
    some = [
        row(f"r-{number}", **{**PREEMPTED, key: name, "cost_usd": str(number + 1)})
        for number, name in enumerate(names)
    ]
    text = page(content(some, key))
    tags = _Tags(text)
    assert "script" not in tags.names
    assert "onload" not in {name for name, _ in tags.attributes}
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c" in text
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert "$x_1$" in text


def test_what_has_no_price_is_never_0_and_what_is_estimated_is_said(rows: list[BilledRow]) -> None:
    text = page(content(rows))
    (line,) = re.findall(r"<tr>\s*(<td[^>]*>speech.*?)</tr>", text, re.DOTALL)
    assert re.findall(r">([^<]*)</td>", line) == [
        *("speech", "1", "1", "2.00", "1.00", "?", "", "", "1", "1")
    ]
    assert "1 of 3 attempts without a price" in text
    assert "1 of 3 attempts not in accounting" in text
    assert "~12.00" in text
    assert "All times are UTC" in text


def test_where_nothing_has_a_price_it_is_about_hours() -> None:
    text = page(content([row("a-1", cost_usd=None, **PREEMPTED | {"on_demand_usd": None})]))
    assert "in GPU hours, with the wasted part" in text
    labels = re.findall(r'aria-label="[^"]*"', text)
    assert labels
    assert all(label.endswith(' GPU hours"') for label in labels)


def test_of_several_partitions_those_have_saved_where_jobs_are_preempted() -> None:
    parts = [
        PartRow("on-demand", None, "a100", 2.0, "6", None, None),
        PartRow("cheap", None, "a100", 4.0, "4", None, "12"),
    ]
    some = [row("a-1", parts=parts, cost_usd="10", on_demand_usd="18")]
    *_, saved = pictures(some, report(some, ["project"]), "project")
    assert saved.title == "Saved by preemptible partitions"
    assert [(bar.name, bar.text) for bar in saved.bars] == [("cheap", "8.00 saved")]


def test_by_month_alone_there_is_one_picture_of_months(rows: list[BilledRow]) -> None:
    assert page(content(rows, "month")).count("By month</b>") == 1


def test_of_nothing_there_is_a_page_too() -> None:
    text = page(content([]))
    assert '<table class="bars">' not in text
    assert "<title>Costs</title>" in text


def test_many_lines_are_all_in_the_table_and_few_in_the_picture() -> None:
    some = [row(f"r-{number}", cost_usd=str(100 - number)) for number in range(50)]
    text = page(content(some, "run"))
    assert "(39 others)" in text
    assert all(f">r-{number}</td>" in text for number in range(50))


def test_it_is_for_its_owner_alone_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "costs.html"
    path.write_text("old")
    path.chmod(0o644)
    assert write_page("new \udcff", path) == path
    assert path.read_text() == "new ?"
    assert path.stat().st_mode & 0o777 == 0o600


def test_where_no_file_can_be_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        write_page("", tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        write_page("", tmp_path / "none" / "costs.html")
    with pytest.raises(StorageError):
        write_page("", tmp_path / ("x" * 300))


def test_it_needs_no_matplotlib(rows: list[BilledRow], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert page(content(rows)).count('<table class="bars">') == 4


def test_where_nothing_has_a_price_nobody_knows_what_was_saved() -> None:
    text = page(content([row("a-1", cost_usd=None)]))
    cards = dict(re.findall(r'<span class="dim">([^<]*)</span>\s*<b>([^<]*?) ?<', text))
    assert (cards["Spent"], cards["Wasted"], cards["Saved"]) == ("?", "?", "?")
