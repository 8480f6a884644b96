"""A home as the hpcflow before this one made it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hpcflow.storage.layout import Home, RunDir


def make_older(home: Home, run_dir: RunDir, *, copy: bytes | None = None) -> RunDir:
    """Put a record where the older hpcflow had it; return the run as that one saw it.

    Args:
        copy: the copy of the journal that the home had.
    """
    before, record = RunDir(run_dir.path), home.runs / run_dir.path.name
    made_ns = home.scratch_link(run_dir.path.name).lstat().st_mtime_ns
    run_json = run_dir.run_json.read_bytes()
    for path, old in ((run_dir.run_json, before.run_json), (run_dir.journal, before.journal)):
        old.write_bytes(path.read_bytes())
    for path in record.iterdir():
        path.unlink()
    record.rmdir()
    record.symlink_to(run_dir.path)
    os.utime(record, ns=(made_ns, made_ns), follow_symlinks=False)
    _put(home.path / "frozen" / record.name, f"{_sum(run_json)}\nnull\n".encode())
    if copy is not None:
        _put(home.path / "journals" / record.name, f"{_sum(copy)}\n".encode() + copy)
    return before


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
