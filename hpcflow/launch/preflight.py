"""Warn before a submission if scratch has too little room for a run's checkpoints.

It refuses nothing: the free space changes until the job starts, and the size of checkpoints is
known only from earlier ones.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from hpcflow.errors import HpcflowError
from hpcflow.model.run import Run
from hpcflow.model.units import format_bytes
from hpcflow.settings import Settings
from hpcflow.storage.checkpoints import newest_complete
from hpcflow.storage.disk_space import Space, look
from hpcflow.storage.files import size_below
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import is_gone, link_of, named

#: Less than this, or than a twentieth of all, counts as nearly full.
_LITTLE_BYTES: Final = 10 << 30
#: How many runs of the same name are searched for a checkpoint.
_LOOKED_AT: Final = 5


def shortage(run: Run, settings: Settings) -> str | None:
    """Return a warning about the room for the checkpoints of ``run``; None if there is enough.

    It needs room for all kept checkpoints, and one more that is written before the oldest is
    removed.
    """
    run_dir = RunDir(Path(run.run_dir))
    space = look(run_dir.path, settings.user)
    if space is None:
        return None
    size_bytes = _last_size(run, run_dir, settings.home)
    if size_bytes is None:
        return _nearly_full(space)
    keep = run.spec.checkpoint
    kept = (keep.keep_last or 1) + (keep.keep_best.count if keep.keep_best else 0)
    there = size_below(run_dir.checkpoints)
    being_written = sum(map(size_below, run_dir.checkpoints.glob(".*")))
    needed_bytes = max(size_bytes - being_written, size_bytes * (kept + 1) - there)
    if space.left_bytes >= needed_bytes:
        return None
    return (
        f"{_left(space)}, and the checkpoints of this run take {format_bytes(needed_bytes)} more: "
        f"{kept + 1} of {format_bytes(size_bytes)}, of which {format_bytes(there)} are there"
        " → make room: hpcflow scratch"
    )


def _nearly_full(space: Space) -> str | None:
    if space.left_bytes >= min(_LITTLE_BYTES, space.total_bytes // 20):
        return None
    return f"{_left(space)} → make room: hpcflow scratch"


def _left(space: Space) -> str:
    return f"{format_bytes(space.left_bytes)} can still be written below {space.path} ({space.why})"


def _last_size(run: Run, run_dir: RunDir, home: Home) -> int | None:
    """Return the size of the newest checkpoint of this run, or of an earlier run of its name."""
    try:
        earlier = (home.run_dir(link_of(home, run_id)) for run_id in named(home, run.spec.name))
        for each in (run_dir, *islice(earlier, _LOOKED_AT)):
            newest = None if is_gone(each) else newest_complete(each)
            if newest is not None:
                return size_below(each.path / newest)
    except (HpcflowError, OSError):  # other code reports an unreadable home
        return None
    return None
