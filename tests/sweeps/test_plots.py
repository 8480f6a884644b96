"""The figures of a sweep: which there are, whether they can be read, and what they need."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib as mpl
import optuna.visualization  # noqa: F401 - before a test takes away what it needs
import pytest
from matplotlib import pyplot as plt
from matplotlib.image import imread
from optuna.importance import get_param_importances

from hpcflow.errors import InputError, StorageError
from hpcflow.resources import install_extra
from hpcflow.sweeps.plots.drawing import Plots, page, picture, write_plots
from hpcflow.sweeps.plots.figures import MOST_LINES, Figure, LeftOut, figures_of
from hpcflow.sweeps.state import SweepProgress, TrialState
from hpcflow.sweeps.study import quiet
from tests.sweeps.drawn import (
    ACCURACY,
    SECONDS,
    SPACE,
    of_one_objective,
    progress_of,
    spec_of,
)

# One process runs all tests that look at the figures of a sweep, so these are drawn once.
pytestmark = pytest.mark.xdist_group("plots")

OF_ONE = ["history", "parallel_coordinates", "slices", "importances", "intermediate_values"]
THIRD = {"metric": "size", "direction": "minimize"}
FOURTH = {"metric": "loss", "direction": "minimize"}


def draw(progress: SweepProgress, folder: Path) -> Plots:
    return write_plots("digits-1", progress, folder)


def found(progress: SweepProgress) -> dict[str, Figure]:
    with quiet():
        return {f.name: f for f in figures_of("digits-1", progress) if isinstance(f, Figure)}


def left_out(progress: SweepProgress) -> dict[str, str]:
    with quiet():
        return {f.figure: f.why for f in figures_of("digits-1", progress) if isinstance(f, LeftOut)}


def colours(path: Path) -> int:
    picture = imread(path)
    assert picture.shape[0] > 400
    assert picture.shape[1] > 500
    return len({tuple(pixel) for row in picture[::4, ::4] for pixel in row})


class Links(HTMLParser):
    """What a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.found += [f"{tag} {value}" for name, value in attrs if name in ("src", "href")]


def links(path: Path) -> Links:
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def test_a_sweep_is_drawn_from_its_journal(plots: Plots) -> None:
    assert [each.figure for each in plots.figures] == OF_ONE
    assert plots.left_out == []
    assert {path.name for path in plots.folder.iterdir()} == {
        *(f"{name}.{kind}" for name in OF_ONE for kind in ("png", "html")),
        "plotly.min.js",
    }
    for each in plots.figures:
        assert each.png is not None
        assert colours(each.png) > 20, f"{each.figure} is no empty picture"


def test_pages_share_one_script_and_name_the_sweep(plots: Plots) -> None:
    for each in plots.figures:
        assert each.html is not None
        inside = links(each.html)
        assert inside.found == ["script plotly.min.js"], "nothing else is fetched"
        assert inside.scripts >= 2
        assert each.html.stat().st_size < 200_000
        text = each.html.read_text(encoding="utf-8")
        assert "accuracy" in text
        assert "digits-1" in text
        assert '<meta name="color-scheme" content="light dark" />' in text
    assert (plots.folder / "plotly.min.js").stat().st_size > 4_000_000


def test_pruned_trials_are_shown_and_told_apart() -> None:
    progress = progress_of(spec_of(), 20)
    pruned = [t.number for t in progress.trials if t.state is TrialState.PRUNED]
    figures = found(progress)
    assert list(figures["history"].pruned) == pruned
    assert None not in figures["history"].pruned.values()
    assert b'"name":"pruned"' in page(figures["history"])
    lines = page(figures["intermediate_values"]).decode()
    assert lines.count('"dash":"dot"') == len(pruned)
    assert all(f"Trial{number} (pruned)" in lines for number in pruned)
    for name in ("history", "intermediate_values"):
        unmarked = replace(figures[name], pruned={})
        assert picture(figures[name]) != picture(unmarked)
    several = found(progress_of(spec_of(ACCURACY, SECONDS), 20))
    assert None not in several["history-accuracy"].pruned.values()
    assert set(several["history-seconds"].pruned.values()) == {None}, "it is not reported"


def test_what_trials_have_reported_is_told_in_the_words_of_the_sweep() -> None:
    spec = spec_of(pruner={"type": "median", "per": "train_step"})
    progress = progress_of(spec, 8)
    figure = found(progress)["intermediate_values"]
    text = page(figure).decode()
    assert '"text":"Train step"' in text
    assert '"text":"Step"' not in text
    trials = figure.study.trials
    assert [len(trial.intermediate_values) for trial in trials] == [99, 29, 99] * 2 + [99, 29]


def test_each_of_several_objectives_is_drawn_the_way_it_should_go(plots_of_two: Plots) -> None:
    assert [each.figure for each in plots_of_two.figures] == [
        *(f"{name}-accuracy" for name in OF_ONE[:-1]),
        *(f"{name}-seconds" for name in OF_ONE[:-1]),
        "pareto_front",
        "intermediate_values",
    ]
    progress = progress_of(spec_of(ACCURACY, SECONDS), 40)
    figures = found(progress)
    done = [t.values or [] for t in progress.trials if t.state is TrialState.COMPLETE]
    assert figures["history-accuracy"].study.best_value == max(values[0] for values in done)
    assert figures["history-seconds"].study.best_value == min(values[1] for values in done)
    front = figures["pareto_front"].study.best_trials
    assert [each.number for each in front] == [each.number for each in progress.front()]
    assert most_important(figures["importances-accuracy"]) == "lr"
    assert most_important(figures["importances-seconds"]) == "units"


def most_important(figure: Figure) -> str:
    options = {name: figure.options[name] for name in ("evaluator", "params")}
    with quiet():
        return next(iter(get_param_importances(figure.study, **options)))


def test_three_objectives_have_a_front_and_four_have_none() -> None:
    three = found(progress_of(spec_of(ACCURACY, SECONDS, THIRD), 12))
    assert picture(three["pareto_front"]).startswith(b"\x89PNG")
    assert b"scatter3d" in page(three["pareto_front"])
    four = progress_of(spec_of(ACCURACY, SECONDS, THIRD, FOURTH), 12)
    assert left_out(four)["pareto_front"] == ("it needs 2 or 3 objectives, and there are 4")


def test_metrics_make_names_of_files_and_no_two_the_same() -> None:
    goals = [{**SECONDS, "metric": name} for name in ("val/acc", "val acc", "../VAL_ACC")]
    names = found(progress_of(spec_of(*goals), 12))
    assert [name for name in names if name.startswith("history")] == [
        "history-val_acc",
        "history-val_acc-2",
        "history-.._VAL_ACC",
    ]


@pytest.mark.parametrize(
    ("trials", "figures"),
    [
        (2, ["intermediate_values"]),
        (4, ["history", "intermediate_values"]),
        (6, ["history", "parallel_coordinates", "slices", "intermediate_values"]),
        (17, OF_ONE),
    ],
)
def test_with_few_complete_trials_some_are_left_out(trials: int, figures: list[str]) -> None:
    progress = progress_of(spec_of(), trials)
    assert list(found(progress)) == figures
    done = progress.count(TrialState.COMPLETE)
    why = left_out(progress)
    assert set(why) == set(OF_ONE) - set(figures)
    if done == 0:
        assert why["history"] == "no trial is complete yet"
    elif done == 1:
        assert why["slices"] == "it needs 2 complete trials, and there is 1"
    elif done < 10:
        assert why["importances"] == f"it needs 10 complete trials, and there are {done}"


def test_one_parameter_is_compared_with_nothing(tmp_path: Path) -> None:
    progress = progress_of(spec_of(space={"lr": SPACE["lr"]}), 30)
    plots = draw(progress, tmp_path)
    assert [each.figure for each in plots.figures] == ["history", "slices", "intermediate_values"]
    why = left_out(progress)
    assert "only one parameter" in why["importances"]
    assert "only one parameter" in why["parallel_coordinates"]


def test_trials_that_came_to_the_same_make_nothing_important() -> None:
    goals = (SECONDS, {"metric": "units", "direction": "minimize"})
    progress = progress_of(spec_of(*goals, space={"a": {"choices": [1, 2]}, "lr": SPACE["lr"]}), 30)
    assert left_out(progress) == {"importances-units": "all complete trials have the same value"}


def test_without_reports_on_the_way_the_rest_is_drawn() -> None:
    progress = progress_of(spec_of(), 30, points=False)
    assert list(found(progress)) == OF_ONE[:-1]
    assert left_out(progress) == {
        "intermediate_values": "no trial has reported accuracy and how far it is (percent of the "
        "training)"
    }


def test_with_nothing_to_draw_nothing_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    with pytest.raises(InputError, match="sweep digits-1 has nothing to draw: no trial") as error:
        draw(progress_of(spec_of(), 3, points=False, ended=False), folder)
    assert error.value.next_action == "see its progress: hpcflow sweep status digits-1"
    with pytest.raises(InputError, match="nothing to draw"):
        draw(progress_of(spec_of(), 0), folder)
    assert not folder.exists()


def test_the_same_sweep_has_the_same_pictures(plots: Plots, tmp_path: Path) -> None:
    draw(of_one_objective(), tmp_path)
    for path in plots.folder.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_names_of_choices_are_neither_formulas_nor_html(plots_of_two: Plots) -> None:
    for each in plots_of_two.figures:
        assert each.html is not None
        assert links(each.html).found == ["script plotly.min.js"]


def test_a_long_name_of_a_choice_is_drawn() -> None:
    space = {**SPACE, "name": {"choices": ["日本語" * 100, "a"]}}
    figures = found(progress_of(spec_of(space=space), 17))
    assert list(figures) == OF_ONE
    for name in ("parallel_coordinates", "slices"):
        assert picture(figures[name]).startswith(b"\x89PNG")
        assert b'class="plotly-graph-div"' in page(figures[name])


def test_a_thousand_trials_are_thinned_and_the_best_stays() -> None:
    progress = progress_of(spec_of(), 1000)
    figure = found(progress)["intermediate_values"]
    lines = [t.number for t in figure.study.trials if t.intermediate_values]
    best = progress.best()
    assert best is not None
    assert len(lines) == MOST_LINES
    assert {0, best.number, 999} <= set(lines)
    assert figure.note == "without 800 of 1000 trials: so many lines are not readable"


def test_of_many_parameters_as_many_are_shown_as_can_be_read() -> None:
    space = {f"p{number}": {"choices": [1, 2]} for number in range(40)}
    figures = found(progress_of(spec_of(space=space), 12))
    for name in ("slices", "parallel_coordinates"):
        assert figures[name].note == "the first 20 of 40 parameters"
        assert figures[name].options["params"] == [f"p{number}" for number in range(20)]
    assert figures["history"].note is None


def test_matplotlib_is_left_as_it_was() -> None:
    backend = mpl.get_backend()
    plt.switch_backend("svg")
    mine = plt.figure()
    settings = dict(mpl.rcParams)
    try:
        for figure in found(progress_of(spec_of(), 17)).values():
            picture(figure)
        assert plt.get_fignums() == [mine.number]
        assert mpl.get_backend() == "svg"
        assert dict(mpl.rcParams) == settings
    finally:
        plt.close(mine)
        plt.switch_backend(backend)


def test_the_settings_of_a_user_do_not_change_the_pictures() -> None:
    figure = found(progress_of(spec_of(), 12))["slices"]
    plain = picture(figure)
    with mpl.rc_context({"text.usetex": True, "figure.dpi": 20, "font.size": 30}):
        assert picture(figure) == plain


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = progress_of(spec_of(), 5)
    monkeypatch.setitem(sys.modules, "plotly", None)
    plots = draw(progress, tmp_path / "plots")
    assert {path.suffix for path in (tmp_path / "plots").iterdir()} == {".png"}
    assert all(each.html is None for each in plots.figures)
    told = f"plotly is not installed: {install_extra('sweeps')}"
    assert LeftOut("*.html", told) in plots.left_out
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="figures need matplotlib or plotly") as error:
        draw(progress, tmp_path / "none")
    assert error.value.next_action == install_extra("sweeps")
    assert not (tmp_path / "none").exists()


def test_files_are_for_whom_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        draw(progress_of(spec_of(), 2), tmp_path / "plots")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "plots").iterdir()}
    assert modes == {0o640}
    assert (tmp_path / "plots").stat().st_mode & 0o777 == 0o750


def test_a_folder_that_is_there_is_overwritten_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "history.png").write_text("old")
    draw(progress_of(spec_of(), 4), tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            InputError, match="is not a directory, or its parent does not exist"
        ) as error:
            draw(progress_of(spec_of(), 2), path)
        assert "--output DIR" in str(error.value.next_action)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_is_full_leaves_the_old_page(tmp_path: Path) -> None:
    (tmp_path / "history.html").write_text("old")
    with files_of_at_most(100), pytest.raises(StorageError, match="cannot write"):
        draw(progress_of(spec_of(), 5), tmp_path)
    assert (tmp_path / "history.html").read_text() == "old"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"history.html"}, "no half file is left"


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """What a disk is that has no more room: a limit of the kernel."""
    before: Any = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
