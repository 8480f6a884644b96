"""List the checkpoints in a run directory. The runtime writes and verifies them."""

from __future__ import annotations

import os
from stat import S_ISREG

from hpcflow.runtime.files import names_in
from hpcflow.runtime.rule import NAMES
from hpcflow.storage.layout import RunDir


def newest_complete(run_dir: RunDir) -> str | None:
    """Return the path of the newest complete checkpoint, relative to the run directory.

    Newest means the highest train step. The job compares the checksums before it resumes.
    """
    try:
        names = names_in(run_dir.checkpoints, NAMES)
    except OSError:
        return None
    newest_first = sorted(names, key=int, reverse=True)
    paths = (f"{run_dir.checkpoints.name}/{name}" for name in newest_first)
    return next((path for path in paths if is_complete(run_dir, path)), None)


def is_complete(run_dir: RunDir, path: str) -> bool:
    """Return whether the checkpoint at ``path``, relative to the run directory, has a manifest."""
    try:
        return S_ISREG(os.lstat(run_dir.path / path / "manifest.json").st_mode)
    except OSError:  # missing, or not readable by this user
        return False
