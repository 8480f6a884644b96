"""The figures of a sweep as Chromium shows them: what plotly draws, and not only its code."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from hpcflow.sweeps.plots.drawing import Plots
from hpcflow.testing.browser import Browser

# One process runs all tests that look at the figures of a sweep, so these are drawn once.
pytestmark = pytest.mark.xdist_group("plots")

FIGURES = [
    *("history-accuracy", "parallel_coordinates-accuracy", "slices-seconds"),
    *("importances-seconds", "pareto_front", "intermediate_values"),
]


@pytest.fixture
def folder(plots_of_two: Plots) -> Path:
    """All figures of one sweep, in a folder whose name is no URL."""
    return plots_of_two.folder


def test_all_figures_are_drawn_and_nothing_complains(browser: Browser, folder: Path) -> None:
    doms, console = browser.look_at_all([folder / f"{name}.html" for name in FIGURES])
    # What stands between dollars is the name of a choice, and no formula.
    assert [line for line in console if "MathJax is not loaded" not in line] == []
    assert len(doms) == len(FIGURES)
    for name, dom in zip(FIGURES, doms, strict=True):
        assert f'id="{name}"' in dom
        assert 'class="main-svg"' in dom, name
        assert "<title>owned" not in dom, name


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
        assert len({tuple(pixel) for row in seen[::4, ::4] for pixel in row}) > 20
    assert corners[False] > 0.9 > 0.2 > corners[True]
