"""Write all figures of a sweep into a directory, as PNG and HTML, with the pages' script."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcflow.errors import InputError, Where
from hpcflow.storage.files import storage_error
from hpcflow.sweeps.plots.drawing import (
    INSTALL,
    SCRIPT,
    has_pages,
    has_pictures,
    page,
    picture,
    script,
)
from hpcflow.sweeps.plots.figures import Figure, LeftOut, figures_of
from hpcflow.sweeps.state import SweepProgress
from hpcflow.sweeps.study import quiet


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
    try:
        try:
            half.write_bytes(data)
            half.replace(path)
        except BaseException:
            with suppress(OSError):
                half.unlink()
            raise
    except OSError as error:
        raise storage_error("write", path, error) from error
    return path
