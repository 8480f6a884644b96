"""Runs that were mirrored: their files in a store, in the order in which a mirror sends them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from hpcflow.mirror.remote import Remote
from hpcflow.mirror.small_files import note_mirrored
from hpcflow.storage.layout import RunDir
from tests.runtime.published import publish

FILES: Mapping[str, bytes] = {"model.pt": b"weights" * 1000, "rank0/optim.pt": b"adam" * 500}


def save(run_dir: RunDir, train_step: int, files: Mapping[str, bytes] = FILES) -> Path:
    """Make a checkpoint as a job does."""
    facts = {"run_id": run_dir.path.name, "attempt": 1, "world_size": 1}
    return publish(run_dir.checkpoints, train_step, files, **facts).path


def mirror(run_dir: RunDir, remote: Remote) -> None:
    """Send the record and all that a run directory holds, the manifests last."""
    note_mirrored(run_dir, run_dir.journal.read_bytes())
    for path in (run_dir.run_json, run_dir.journal):
        remote.put_bytes(path.read_bytes(), f"{run_dir.path.name}/{path.name}")
    names = [path for path in sorted(run_dir.path.rglob("*")) if path.is_file()]
    for path in sorted(names, key=lambda path: path.name == "manifest.json"):
        name = path.relative_to(run_dir.path)
        if name.parts[0] == "runtime" or any(p[0] == "." for p in name.parts):
            continue
        remote.put_bytes(path.read_bytes(), f"{run_dir.path.name}/{name.as_posix()}")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for what belongs to this machine alone."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "submit.lock" and "runtime" not in path.parts
    }


def all_of(run_dir: RunDir) -> dict[str, bytes]:
    """The same of its run directory, with its journal and its ``run.json``."""
    kept = (run_dir.run_json, run_dir.journal)
    record = {path.name: path.read_bytes() for path in kept if path.exists()}
    return {**contents(run_dir.path), **record}


def purge(run_dir: RunDir) -> None:
    """All of its run directory, as ``rm -r`` does; the record is out of reach."""
    shutil.rmtree(run_dir.path)
