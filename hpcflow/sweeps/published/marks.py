"""Remember what of a sweep has been published: a mark for each trial.

A mark is a short text that changes whenever something of the trial does that is published. It
stands in the study's database beside the trial, and is what counts. ``published.json`` in the
sweep's directory only spares opening the database when nothing has changed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from hpcflow.runtime.reading import read_json
from hpcflow.storage.files import write_durably
from hpcflow.sweeps.state import SweepProgress, Trial

#: The first part of every mark: other rows were written, if it is another one.
_FORMAT: Final = "1"


def mark_of(trial: Trial) -> str:
    """How far ``trial`` is, by what only ever grows."""
    points = sum(len(report.points) for report in trial.reports.values())
    parts = (len(trial.all_runs), points, trial.judged_to, len(trial.attrs), trial.state.value)
    return ".".join([_FORMAT, *map(str, parts)])


def has_same_runs(one: str | None, other: str) -> bool:
    """Whether values of the same runs stand behind two marks: then there can only be more."""
    return one is not None and one.split(".")[:2] == other.split(".")[:2]


def is_published(path: Path, progress: SweepProgress, place: str, file: Path | None) -> bool:
    """Whether all of it was written to ``place`` before, as far as that can be told from outside.

    Args:
        path: what is remembered.
        file: of a database that is one.
    """
    try:
        return bool(read_json(path) == _remembered(progress, place, file))
    except (OSError, ValueError):
        return False


def remember(path: Path, progress: SweepProgress, place: str, file: Path | None) -> None:
    """Put down that all of it was written.

    Raises:
        StorageError: it cannot be put down.
        OSError: the database is gone already.
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
