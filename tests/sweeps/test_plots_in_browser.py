"""The figures of a sweep as Chromium shows them: what plotly draws, and not only its code."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from hpcflow.sweeps.plots.drawing import write_plots
from hpcflow.testing.browser import Browser
from tests.sweeps.drawn import ACCURACY, SECONDS, SPACE, progress_of, spec_of

# One process runs all tests of this file, so their common set-up is made once.
pytestmark = pytest.mark.xdist_group("plots_in_browser")

EVIL = ["</script><script>document.title='owned'</script>", "a$b$c", "日本語"]
FIGURES = [
    *("history-accuracy", "parallel_coordinates-accuracy", "slices-seconds"),
    *("importances-seconds", "pareto_front", "intermediate_values"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures of one sweep, in a folder whose name is no URL."""
    folder = tmp_path_factory.mktemp("plots") / "it's #1 100%?"
    space = {**SPACE, "name": {"choices": EVIL}}
    write_plots("digits-1", progress_of(spec_of(ACCURACY, SECONDS, space=space), 40), folder)
    return folder


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_and_nothing_complains(browser: Browser, folder: Path, name: str) -> None:
    seen = browser.look(folder / f"{name}.html")
    # What stands between dollars is the name of a choice, and no formula.
    assert [line for line in seen.console if "MathJax is not loaded" not in line] == []
    assert 'class="main-svg"' in seen.dom
    assert "<title>owned" not in seen.dom


def test_it_follows_the_scheme_of_the_browser(
    browser: Browser, folder: Path, tmp_path: Path
) -> None:
    page = folder / "history-accuracy.html"
    corners = {}
    for dark in (False, True):
        to = tmp_path / f"{dark}.png"
        seen = imread(browser.picture(page, to, width=1000, height=700, dark=dark))
        corners[dark] = float(seen[2, 2, :3].mean())
        ink = abs(seen[:, :, :3] - 0x7A / 255).max(axis=2) < 0.02
        assert ink.sum() > 100, "its text is there in both"
    assert corners[False] > 0.9 > 0.2 > corners[True]


def test_it_can_be_seen(browser: Browser, folder: Path, tmp_path: Path) -> None:
    page = folder / "history-accuracy.html"
    seen = imread(browser.picture(page, tmp_path / "seen.png", width=1000, height=700))
    assert len({tuple(pixel) for row in seen[::4, ::4] for pixel in row}) > 20
