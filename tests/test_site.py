"""The site of the documentation, as `make docs` builds it."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.fenced import ROOT

# One process runs all tests of this file, so their common set-up is made once.
pytestmark = pytest.mark.xdist_group("site")


class Links(HTMLParser):
    """The targets of a page's links, and what they can lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and (target := values.get("href")):
            self.targets.append(target)
        if name := values.get("id"):
            self.ids.add(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Warnings are errors: a page in no list of index.md, or a link to no page or section."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "-q", "--keep-going", "-d", str(folder / "doctrees")]
    argv = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


def test_every_page_is_in_the_navigation(site: Path) -> None:
    pages = {f"{path.stem}.html" for path in ROOT.glob("docs/*.md")}
    assert pages - {"commands.html"} <= set(Links(site / "commands.html").targets)


def test_no_link_is_dead(site: Path) -> None:
    pages = {path: Links(path) for path in site.glob("*.html")}
    dead = []
    for page, links in pages.items():
        for target in links.targets:
            path, _, anchor = target.partition("#")
            found = site / path if path else page
            if "://" in target or target.startswith("mailto:"):
                continue
            if not found.exists() or (anchor and found in pages and anchor not in pages[found].ids):
                dead.append(f"{page.name}: {target}")
    assert dead == []


def test_the_start_page_is_the_readme_and_the_lists_of_pages(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert "From nothing to the best checkpoint" in text
    assert "How-to guides" in text


def test_a_link_shows_the_title_of_its_page(site: Path) -> None:
    assert ".md</" not in (site / "commands.html").read_text(encoding="utf-8")
