"""Runs that were mirrored: their files in a store, in the order in which a mirror sends them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from hpcflow.mirror.remote import Remote
from hpcflow.storage.journal_copy import write_copy
from hpcflow.storage.layout import Home, RunDir
from tests.runtime.published import publish

FILES: Mapping[str, bytes] = {"model.pt": b"weights" * 1000, "rank0/optim.pt": b"adam" * 500}


def save(run_dir: RunDir, train_step: int, files: Mapping[str, bytes] = FILES) -> Path:
    """Make a checkpoint as a job does."""
    facts = {"run_id": run_dir.path.name, "attempt": 1, "world_size": 1}
    return publish(run_dir.checkpoints, train_step, files, **facts).path


def mirror(run_dir: RunDir, remote: Remote, home: Home) -> None:
    """Send all that a run directory holds, the manifests last."""
    write_copy(home, run_dir.path.name, run_dir.journal.read_bytes())
    names = [path for path in sorted(run_dir.path.rglob("*")) if path.is_file()]
    left_out = {run_dir.submit_lock}
    for path in sorted(names, key=lambda path: path.name == "manifest.json"):
        name = path.relative_to(run_dir.path)
        if path in left_out or name.parts[0] == "runtime" or any(p[0] == "." for p in name.parts):
            continue
        remote.put(path, f"{run_dir.path.name}/{name.as_posix()}")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for what belongs to this machine alone."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "submit.lock" and "runtime" not in path.parts
    }


def purge(run_dir: RunDir) -> None:
    """All of it, as ``rm -r`` does."""
    shutil.rmtree(run_dir.path)
