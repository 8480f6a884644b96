"""Draw figures into a directory, as PNG and as HTML that needs no network.

Colours are those of Okabe and Ito, which colour-blind people can distinguish. A page has no
background, and text that is readable in light and dark mode. Pruned trials are grey or dotted.

Optuna draws, without a display, without changing matplotlib's global state, and independent of the
user's settings of matplotlib.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpcflow.errors import InputError, Where
from hpcflow.resources import install_extra
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.sweeps.plots.figures import Figure, LeftOut, figures_of
from hpcflow.sweeps.state import SweepProgress
from hpcflow.sweeps.study import quiet
from hpcflow.working_dir import import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Picture

INSTALL: Final = install_extra("sweeps")
_DPI: Final = 120
#: Agg draws no picture that is wider or higher than 65,536.
_MOST_PIXELS: Final = 30_000
_PAD_INCHES: Final = 0.1
_AXIS_INCHES: Final = 1.8
_SLICE_INCHES: Final = 3.6
_COLOURS: Final = 20
#: The palette of Okabe and Ito, without black.
_PALETTE: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#56B4E9", "#E69F00", "#F0E442"),
)
#: Text colour with enough contrast on white and on black.
_INK: Final = "#7a7a7a"
_PRUNED: Final = "pruned"
#: The script that all pages of a directory share.
SCRIPT: Final = "plotly.min.js"
#: Most characters of the name of a choice beside an axis.
_ROOM_CHARS: Final = 16


def has_pictures() -> bool:
    """Return whether matplotlib, which draws PNG, is installed."""
    return find_spec("matplotlib") is not None


def has_pages() -> bool:
    """Return whether plotly, which draws HTML, is installed."""
    return find_spec("plotly") is not None


def picture(figure: Figure) -> bytes:
    """Return the figure as PNG.

    Raises:
        InputError: ``MPLBACKEND`` names no backend of matplotlib.
    """
    with _canvas(), quiet():
        import numpy as np
        import optuna.visualization.matplotlib as drawn

        axes = getattr(drawn, figure.function)(figure.study, **figure.options)
        found = np.atleast_1d(axes).flat[0].figure
        _finish(found, figure)
        return _png(found)


@contextmanager
def _canvas() -> Iterator[None]:
    """Set matplotlib to its defaults, without a display; restore its state afterwards."""
    try:
        import_matplotlib()
        import matplotlib as mpl
        from matplotlib import pyplot as plt
    except ValueError as error:
        raise InputError(
            f"matplotlib does not start: {str(error).partition(';')[0]}",
            where=Where(key="MPLBACKEND"),
            next_action="unset MPLBACKEND; then repeat the command",
        ) from None
    backend, before = mpl.get_backend(auto_select=False), plt.get_fignums()
    with mpl.rc_context():
        mpl.rcdefaults()
        # A dollar sign in the name of a choice must not start a formula.
        mpl.rcParams["text.parse_math"] = False
        mpl.rcParams["figure.dpi"] = _DPI  # text is measured as it is drawn
        plt.switch_backend("agg")
        try:
            yield
        finally:
            for number in set(plt.get_fignums()) - set(before):
                plt.close(number)
            if backend is not None:
                with suppress(ImportError):
                    plt.switch_backend(backend)


def script() -> bytes:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


def page(figure: Figure) -> bytes:
    """Return the figure as HTML, which loads its script from the same directory."""
    with suppress(ImportError, ValueError):  # Optuna imports matplotlib if it is installed
        import_matplotlib()
    import optuna.visualization as drawn

    with quiet():
        found: Any = getattr(drawn, figure.function)(figure.study, **figure.options)
        if figure.labels is not None:
            found.update_layout(xaxis_title=figure.labels[0], yaxis_title=figure.labels[1])
        _style(found, figure)
        text: str = found.to_html(
            include_plotlyjs="directory", div_id=figure.name, config={"displaylogo": False}
        )
    head = '<head><meta name="color-scheme" content="light dark" />'
    return text.replace("<head>", head, 1).encode("utf-8", "replace")


def _style(found: Any, figure: Figure) -> None:
    """Name the sweep, mark pruned trials, and set the colours."""
    found.update_layout(
        title_text=f"{found.layout.title.text}<br><sup>{figure.sweep_id}</sup>",
        colorway=_PALETTE,
    )
    if figure.function != "plot_parallel_coordinate":  # its lines need the background
        found.update_layout(paper_bgcolor="rgba(0,0,0,0)", font_color=_INK)
    if figure.function == "plot_optimization_history":
        points = _with_values(figure)
        found.add_scatter(
            x=list(points),
            y=list(points.values()),
            mode="markers",
            name=_PRUNED,
            marker={"color": "#999999", "symbol": "x"},
        )
    elif figure.function == "plot_intermediate_values":
        for line in found.data:
            if _trial_of(line.name) in figure.pruned:
                line.update(line={"dash": "dot"}, name=f"{line.name} ({_PRUNED})")


def _with_values(figure: Figure) -> dict[int, float]:
    return {number: value for number, value in figure.pruned.items() if value is not None}


def _trial_of(label: str) -> int | None:
    """Return the number of a trial from Optuna's label of its line, ``Trial7``."""
    number = label.removeprefix("Trial").strip()
    return int(number) if number.isdecimal() else None


def _finish(picture: Picture, figure: Figure) -> None:
    """Set titles, labels and sizes, and mark pruned trials."""
    axes = picture.axes[0]
    if figure.labels is not None:
        axes.set_xlabel(figure.labels[0])
        axes.set_ylabel(figure.labels[1])
    for each in picture.axes:
        _without_formulas(each)
    if figure.function == "plot_intermediate_values":
        _tell_lines_apart(picture, figure)
    elif figure.function == "plot_optimization_history":
        _mark_pruned(axes, figure)
    elif figure.function == "plot_parallel_coordinate":
        _spread_axes(picture)
    elif figure.function == "plot_slice":
        picture.set_size_inches(_SLICE_INCHES * (len(picture.axes) - 1) + 1.5, 4.8)
        for each in picture.axes:
            _slant(each)
    elif figure.function == "plot_pareto_front" and axes.name == "3d":
        picture.set_size_inches(9, 8)
    if title := picture.get_suptitle():
        picture.suptitle(f"{title}\n{figure.sweep_id}")
    else:
        axes.set_title(f"{axes.get_title()}\n{figure.sweep_id}")


def _mark_pruned(axes: Axes, figure: Figure) -> None:
    points = _with_values(figure)
    if points:
        axes.scatter(
            list(points), list(points.values()), marker="x", color="#777777", label=_PRUNED
        )
        axes.legend(bbox_to_anchor=(1.05, 1.0), loc="upper left")


def _tell_lines_apart(picture: Picture, figure: Figure) -> None:
    """Dot the lines of pruned trials, and colour many lines by their order.

    Optuna has twenty colours, and a legend that grows higher than the picture.
    """
    from matplotlib import colormaps

    axes = picture.axes[0]
    lines = axes.get_lines()
    legend = axes.get_legend()
    for index, line in enumerate(lines):
        line.set_color(_PALETTE[index % len(_PALETTE)])
        if _trial_of(str(line.get_label())) in figure.pruned:
            line.set_linestyle(":")
            line.set_label(f"{line.get_label()} ({_PRUNED})")
    if legend is not None and len(lines) <= _COLOURS:
        axes.legend(bbox_to_anchor=(1.05, 1.0), loc="upper left")
    if len(lines) <= _COLOURS or legend is None:
        return
    legend.remove()
    for index, line in enumerate(lines):
        line.set_color(colormaps["viridis"](index / len(lines)))
        line.set_alpha(0.4)
        line.set_marker("")
    axes.set_title("Intermediate Values Plot (dark: the first trials, dotted: pruned)")


def _without_formulas(axes: Axes) -> None:
    """Show powers of ten as plain numbers, because formulas are off."""
    from matplotlib.ticker import LogFormatter

    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(LogFormatter())
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))


def _spread_axes(picture: Picture) -> None:
    """Make the picture wide enough for the labels of each axis, and keep them readable."""
    first, *others = picture.axes
    picture.set_size_inches(max(6.4, _AXIS_INCHES * len(first.get_xticks())), 4.8)
    for axes in others:
        _shorten(axes.yaxis)
        for label in axes.get_yticklabels():
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5})


def _slant(axes: Axes) -> None:
    """Slant the names of choices below an axis, so that they do not overlap."""
    from matplotlib.category import StrCategoryConverter

    if isinstance(axes.xaxis.get_converter(), StrCategoryConverter):
        _shorten(axes.xaxis)
        for label in axes.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")


def _shorten(axis: Axis) -> None:
    texts = [label.get_text() for label in axis.get_ticklabels()]
    if any(len(text) > _ROOM_CHARS for text in texts):
        axis.set_ticks(axis.get_ticklocs(), [_short(text) for text in texts])


def _short(text: str) -> str:
    return text if len(text) <= _ROOM_CHARS else f"{text[: _ROOM_CHARS - 1]}…"


def _png(picture: Picture) -> bytes:
    picture.draw_without_rendering()
    box = picture.get_tightbbox()
    inches = max(box.width, box.height, 1.0)
    file = io.BytesIO()
    dpi = min(_DPI, _MOST_PIXELS / inches)
    # "tight" would lay out and measure everything again, which takes as long as to draw it.
    picture.savefig(file, format="png", dpi=dpi, bbox_inches=box.padded(_PAD_INCHES))
    return file.getvalue()


@dataclass(frozen=True)
class Plotted:
    """The files of one figure; None for a format that cannot be drawn here.

    Attributes:
        note: what the figure leaves out.
    """

    figure: str
    png: Path | None
    html: Path | None
    note: str | None = None


@dataclass(frozen=True)
class Plots:
    """The figures that were written, and those left out."""

    sweep_id: str
    folder: Path
    figures: list[Plotted]
    left_out: list[LeftOut]


def write_plots(sweep_id: str, progress: SweepProgress, folder: Path) -> Plots:
    """Draw all possible figures of a sweep. Files of the same names are overwritten.

    Raises:
        InputError: no figure is possible, no drawing package is installed, or ``folder`` is not a
            directory.
    """
    left = _missing()
    with quiet():
        found = figures_of(sweep_id, progress)
    left += [each for each in found if isinstance(each, LeftOut)]
    figures = [each for each in found if isinstance(each, Figure)]
    if not figures:
        reasons = "; ".join(dict.fromkeys(each.why for each in left))
        raise InputError(
            f"sweep {sweep_id} has nothing to draw: {reasons}",
            next_action=f"see its progress: hpcflow sweep status {sweep_id}",
        )
    plotted = [_write(figure, folder) for figure in figures]
    if has_pages():
        _put(folder / SCRIPT, script())
    return Plots(sweep_id, folder, plotted, left)


def _missing() -> list[LeftOut]:
    lacks = {
        kind: name
        for kind, name, is_there in (
            ("*.png", "matplotlib", has_pictures()),
            ("*.html", "plotly", has_pages()),
        )
        if not is_there
    }
    if len(lacks) > 1:
        raise InputError(
            f"figures need {' or '.join(lacks.values())}, where hpcflow is installed",
            next_action=INSTALL,
        )
    return [LeftOut(kind, f"{name} is not installed: {INSTALL}") for kind, name in lacks.items()]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(
            f"{folder} is not a directory, or its parent does not exist",
            where=Where(key="--output"),
            next_action="name a directory, which need not exist: --output DIR",
        ) from None
    except OSError as error:
        raise storage_error("make", folder, error) from error


def _write(figure: Figure, folder: Path) -> Plotted:
    png = picture(figure) if has_pictures() else None
    html = page(figure) if has_pages() else None
    _make(folder)
    return Plotted(
        figure.name,
        _put(folder / f"{figure.name}.png", png) if png is not None else None,
        _put(folder / f"{figure.name}.html", html) if html is not None else None,
        figure.note,
    )


def _put(path: Path, data: bytes) -> Path:
    """Write ``data`` to ``path`` atomically, with the permissions of the umask."""
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with storage_errors("write", path):
        try:
            half.write_bytes(data)
            half.replace(path)
        except BaseException:
            with suppress(OSError):
                half.unlink()
            raise
    return path
