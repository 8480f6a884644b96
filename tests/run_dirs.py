"""The run of a directory, for helpers that know no home."""

from __future__ import annotations

from pathlib import Path

from hpcflow.storage.layout import Home, RunDir


def run_dir_at(path: Path) -> RunDir:
    """The run at ``path``; its home is ``home/`` beside or above its scratch."""
    homes = (Home(parent / "home") for parent in path.parents)
    return next(home.run_dir(path) for home in homes if (home.runs / path.name).is_dir())
