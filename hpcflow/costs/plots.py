"""Draw bar charts as inline SVG, in the colours and fonts of the page, light or dark.

Matplotlib draws files of their own, so the parts that do not fit into a page are removed: XML
namespaces, ids that all pictures share, and fixed colours and fonts of texts.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from hpcflow.errors import InputError, Where
from hpcflow.resources import install_extra
from hpcflow.runtime.safe_text import safe
from hpcflow.working_dir import import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Readable on white and on black.
USED: Final = "#4c86c6"
WASTED: Final = "#e0643c"
SAVED: Final = "#3f9c6b"
#: A placeholder for the colour of the page's text, which depends on the dark mode.
_TEXT: Final = "#010203"
_WIDTH_INCHES: Final = 6.4
#: Characters of a name that fit beside an axis.
_ROOM_CHARS: Final = 28
_TAG: Final = re.compile(r"<[^<>]*>")
_ID: Final = re.compile(r'<g id="[^"]*"')
_FONT: Final = re.compile(r"font-family: [^;\"]*; ?")
#: The style sheet, which would apply to the whole page, and the metadata.
_SHEET: Final = re.compile(r".*?</style>\s*</defs>", re.DOTALL)
_MOST_BARS: Final = 12
_MOST_MONTHS: Final = 24


@dataclass(frozen=True)
class Part:
    """One colour of stacked bars."""

    name: str
    colour: str
    values: Sequence[float]


def require_matplotlib() -> None:
    """Raise InputError if matplotlib is missing, or the environment names an unknown backend."""
    if find_spec("matplotlib") is None:
        raise InputError(
            "a page with plots needs matplotlib, where hpcflow is installed",
            next_action=install_extra("reports"),
        )
    try:
        import_matplotlib()
    except ValueError as error:
        raise InputError(
            f"matplotlib does not start: {str(error).partition(';')[0]}",
            where=Where(key="MPLBACKEND"),
            next_action="unset MPLBACKEND; then repeat the command",
        ) from None


def horizontal_bars(
    name: str, names: Sequence[str], parts: Sequence[Part], unit: str, texts: Sequence[str]
) -> str:
    """Return horizontal bars, the first on top; beyond a number of bars, the rest is one bar.

    Args:
        name: of the picture, unique in the page.
        names: of the bars, by :func:`short` or :func:`joined`.
        parts: the parts of each bar, from the left.
        texts: the text behind each bar.
    """
    names, parts, texts = _merge_rest(names, parts, texts)
    with _drawing(name, 0.34 * len(names) + 0.75) as (figure, axes):
        places = range(len(names))
        begin = [0.0] * len(names)
        for part in parts:
            axes.barh(places, part.values, left=begin, color=part.colour, label=part.name)
            begin = [old + more for old, more in zip(begin, part.values, strict=True)]
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="x", alpha=0.3)
        for place, end, text in zip(places, begin, texts, strict=True):
            axes.annotate(text, (end, place), (4, 0), textcoords="offset points", va="center")
        axes.margins(x=0.14)
        _legend(axes, parts)
        return _svg(figure)


def vertical_bars(name: str, names: Sequence[str], parts: Sequence[Part], unit: str) -> str:
    """Return vertical bars in order; of many only the last. As :func:`horizontal_bars`."""
    names = names[-_MOST_MONTHS:]
    with _drawing(name, 2.9) as (figure, axes):
        places = range(len(names))
        begin = [0.0] * len(names)
        for part in parts:
            values = part.values[-_MOST_MONTHS:]
            axes.bar(places, values, bottom=begin, color=part.colour, label=part.name, width=0.7)
            begin = [old + more for old, more in zip(begin, values, strict=True)]
        axes.set_xticks(places, [short(each) for each in names])
        if len(names) > 8:
            for label in axes.get_xticklabels():
                label.set(rotation=45, ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.6, max(len(names), 4) - 0.4)
        axes.set_ylabel(unit)
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y", alpha=0.3)
        _legend(axes, parts)
        return _svg(figure)


def _merge_rest(
    names: Sequence[str], parts: Sequence[Part], texts: Sequence[str]
) -> tuple[Sequence[str], Sequence[Part], Sequence[str]]:
    if len(names) <= _MOST_BARS:
        return names, parts, texts
    kept = _MOST_BARS - 1
    rest = [
        Part(part.name, part.colour, [*part.values[:kept], sum(part.values[kept:])])
        for part in parts
    ]
    together = f"{sum(part.values[kept] for part in rest):,.2f}"
    return [*names[:kept], f"({len(names) - kept} others)"], rest, [*texts[:kept], together]


def _legend(axes: Axes, parts: Sequence[Part]) -> None:
    if len(parts) > 1:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(parts), frameon=False, borderpad=0
        )


@contextmanager
def _drawing(name: str, height_inches: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a picture with matplotlib's defaults, independent of the user's settings."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about letters that only the page's font has
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "text.parse_math": False,  # a dollar in a name is not a formula
                "svg.fonttype": "none",
                "svg.hashsalt": name,
                "font.size": 9,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                **dict.fromkeys(_COLOURS, _TEXT),
            }
        )
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        yield figure, figure.subplots()


_COLOURS: Final = (
    *("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
    "grid.color",
)


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    width, height = re.findall(r'(?:width|height)="([\d.]+)pt"', text)[:2]
    head = f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    body = _SHEET.sub("", text[text.index(">") + 1 :], count=1)
    # Only within tags: between them are arbitrary names.
    return f'{head}aria-hidden="true">' + _TAG.sub(lambda tag: _inline_tag(tag[0]), body).strip()


def _inline_tag(tag: str) -> str:
    """Return a tag of a file, adapted to the page."""
    return _FONT.sub("", _ID.sub("<g", tag.replace(_TEXT, "currentColor")))


def short(name: str, room_chars: int = _ROOM_CHARS) -> str:
    """Return a name, shortened to fit beside an axis."""
    text = safe(name)
    return text if len(text) <= room_chars else f"{text[: room_chars - 1]}…"


def joined(names: Sequence[str]) -> str:
    """Return several names as one, each with its share of the room."""
    room_chars = max(6, (_ROOM_CHARS - 3 * (len(names) - 1)) // len(names))
    return " · ".join(short(name or "-", room_chars) for name in names)
