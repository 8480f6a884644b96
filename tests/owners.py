"""File systems that say of files whose they are, whoever made them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest


def give_all_files_below(drive: Path, owner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all files below ``drive`` have this owner, as far as open files and paths say it."""
    fstat, stat, lstat = os.fstat, os.stat, os.lstat

    def owned(status: os.stat_result, path: object) -> os.stat_result:
        if not isinstance(path, (str, os.PathLike)):
            return status
        of_open = re.match(r"/proc/self/fd/\d+", text := os.fspath(path))
        if of_open is not None:
            text = str(Path(of_open[0]).readlink()) + text[of_open.end() :]
        if not f"{text}/".startswith(f"{drive}/"):
            return status
        times = {name: getattr(status, name) for name in ("st_mtime_ns", "st_ctime_ns")}
        return os.stat_result([*status[:4], owner, *status[5:]], times)

    def of_open(descriptor: int) -> os.stat_result:
        return owned(fstat(descriptor), Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fstat", of_open)
    monkeypatch.setattr(os, "stat", lambda path, **more: owned(stat(path, **more), path))
    monkeypatch.setattr(os, "lstat", lambda path, **more: owned(lstat(path, **more), path))
