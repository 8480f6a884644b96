"""Remember which trials of a sweep are published: a mark for each trial.

A mark is a short text that changes whenever published data of the trial changes. The study's
database holds it beside the trial. ``published.json`` in the sweep's directory only avoids opening
the database if nothing has changed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from hpcflow.runtime.reading import read_json
from hpcflow.storage.files import write_durably
from hpcflow.sweeps.state import SweepProgress, Trial

#: The first part of every mark: the version of the rows.
_FORMAT: Final = "1"


def mark_of(trial: Trial) -> str:
    """Return the mark of ``trial``: counts that only grow, and its state."""
    points = sum(len(report.points) for report in trial.reports.values())
    parts = (len(trial.all_runs), points, trial.judged_to, len(trial.attrs), trial.state.value)
    return ".".join([_FORMAT, *map(str, parts)])


def has_same_runs(one: str | None, other: str) -> bool:
    """Return whether two marks are of the same runs: then values were only added."""
    return one is not None and one.split(".")[:2] == other.split(".")[:2]


def is_published(path: Path, progress: SweepProgress, place: str, file: Path | None) -> bool:
    """Return whether the sweep was written to ``place`` before; the database is not opened.

    Args:
        path: of ``published.json``.
        file: of a SQLite database.
    """
    try:
        return bool(read_json(path) == _remembered(progress, place, file))
    except (OSError, ValueError):
        return False


def remember(path: Path, progress: SweepProgress, place: str, file: Path | None) -> None:
    """Remember that the sweep was written to ``place``.

    Raises:
        StorageError: ``path`` cannot be written.
        OSError: the database file is missing.
    """
    write_durably(path, json.dumps(_remembered(progress, place, file)))


def _remembered(progress: SweepProgress, place: str, file: Path | None) -> dict[str, object]:
    marks = "\n".join(map(mark_of, progress.trials))
    return {
        "place": place,
        "inode": None if file is None else file.stat().st_ino,
        "trials": len(progress.trials),
        "marks": hashlib.sha256(marks.encode()).hexdigest(),
    }
