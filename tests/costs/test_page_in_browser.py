"""The page of a report as Chromium shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.costs.page import page, write_page
from hpcflow.testing.browser import Browser
from tests.costs.billed import content, row

HOSTILE = "<script>document.title = 'owned'</script>"


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    """A page with everything that one can have, beside a folder whose name is no URL."""
    folder = tmp_path / "it's #1 100%?"
    folder.mkdir()
    spot = {"cause": "preempted", "wasted_s": 900.0, "partition": "spot", "on_demand_usd": "18"}
    rows = [row("a-1"), row("a-1", attempt=2, **spot), row("b-1", project=HOSTILE, **spot)]
    yield write_page(page(content(rows)), folder / "costs.html")


def test_nothing_is_executed_and_nothing_complains(browser: Browser, written: Path) -> None:
    seen = browser.look(written)
    assert seen.console == []
    assert "<title>Costs</title>" in seen.dom
    assert seen.dom.count('<table class="bars">') == 4
    assert "&lt;script&gt;document.title" in seen.dom
    assert "parsererror" not in seen.dom


def test_it_is_readable_when_it_is_light_dark_narrow_and_printed(
    browser: Browser, written: Path, tmp_path: Path
) -> None:
    from matplotlib.image import imread

    light = browser.picture(written, tmp_path / "light.png", width=1280, height=900)
    dark = browser.picture(written, tmp_path / "dark.png", width=400, height=900, dark=True)
    for picture, is_dark in ((imread(light), False), (imread(dark), True)):
        grey = picture[..., :3].mean(axis=2)
        assert bool(grey.mean() < 0.5) is is_dark
        assert grey.max() - grey.min() > 0.7, "letters differ from the paper"
        assert len(set(grey.ravel().round(2).tolist())) > 20, "something is drawn"
    printed = browser.printed(written, tmp_path / "printed.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") <= 3


def test_a_script_that_fails_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    """The test above can fail."""
    path = tmp_path / "bad.html"
    path.write_text("<script src='http://example.org/x.js'></script><script>oops()</script>")
    assert len(browser.look(path).console) >= 1
