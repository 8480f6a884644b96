"""Checkpoints for tests, made as rank 0 makes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcflow.runtime.files import NewFile
from hpcflow.runtime.manifest import Checkpoint
from hpcflow.runtime.store import CheckpointStore

FILES = {"model.pt": b"weights " * 1000, "rank-00000.json": b"{}", "sub/dir/data.bin": b"\0" * 10}


def publish(folder: Path, train_step: int, files: Mapping[str, bytes], **facts: Any) -> Checkpoint:
    """Write ``files`` and make them the checkpoint of ``train_step`` in ``folder``."""
    store = CheckpointStore(folder)
    staged = store.stage(train_step, train_step + 7)
    written = {}
    for name, data in files.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        file = NewFile(staged / name)
        file.write(data)
        written[name] = file.close()
    return store.publish(staged, train_step, written, **facts)


def save(folder: Path, train_step: int) -> None:
    """Make a checkpoint as rank 0 does, without a training around it."""
    CheckpointStore(folder).clean()
    publish(folder, train_step, FILES, metrics={"loss": 0.5}, epoch=1.5)
