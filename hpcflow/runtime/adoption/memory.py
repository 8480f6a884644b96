"""``adoption.json``: checkpoints of the program that are not to be adopted, or not again.

::

    {"format": 1, "known": {"out/ckpt.pt": {"state": "9f86…", "train_step": 7}, …}}

``state`` is that of :class:`hpcflow.runtime.adoption.foreign.Foreign`: if it differs, the program
has changed the checkpoint. ``train_step`` is null for those from before the run, and those that may
be incomplete. If this file is lost, a checkpoint may be adopted twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcflow.runtime.files import random_word, sync, write_new
from hpcflow.runtime.reading import JsonError, read_object

NAME = "adoption.json"
_FORMAT = 1


@dataclass(frozen=True)
class Known:
    """The state in which a checkpoint was adopted as ``train_step``, or passed over."""

    state: str
    train_step: int | None = None


def read_memory(path: Path) -> dict[str, Known] | None:
    """Return the known checkpoints by name; None if the file is missing or unreadable."""
    try:
        memory = read_object(path)
        if memory["format"] != _FORMAT:
            return None
        return {name: Known(**entry) for name, entry in memory["known"].items()}
    except (OSError, JsonError, LookupError, AttributeError, TypeError):
        return None


def write_memory(path: Path, known: Mapping[str, Known]) -> None:
    """Replace the file at once.

    Raises:
        OSError: the disk is full or gone; the old file stays.
    """
    entries = {name: asdict(known[name]) for name in sorted(known)}
    text = json.dumps({"format": _FORMAT, "known": entries}, indent=1)
    half = path.with_name(f".{path.name}.{random_word()}.tmp")
    try:
        write_new(half, text.encode())
        half.replace(path)
    finally:
        if half.exists():
            half.unlink()
    sync(path.parent)
