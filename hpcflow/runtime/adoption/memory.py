"""``adoption.json``: what is not to be adopted, or not again.

::

    {"format": 1, "known": {"out/ckpt.pt": {"state": "9f86…", "train_step": 7}, …}}

``state`` is that of :class:`hpcflow.runtime.adoption.foreign.Foreign`: once it is another one, the
program has written there. ``train_step`` is null for what was there before the run, and for what
its writer may have left half. It is a memory and no fact: if it is lost, one is adopted twice.
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
    """How something looked when it was adopted as ``train_step``, or passed over."""

    state: str
    train_step: int | None = None


def read_memory(path: Path) -> dict[str, Known] | None:
    """Name -> what is known of it; None when nothing was ever written down."""
    try:
        said = read_object(path)
        if said["format"] != _FORMAT:
            return None
        return {name: Known(**entry) for name, entry in said["known"].items()}
    except (OSError, JsonError, LookupError, AttributeError, TypeError):
        return None


def write_memory(path: Path, known: Mapping[str, Known]) -> None:
    """Write ``known`` down, all at once.

    Raises:
        OSError: the disk is full or gone; the old one stays.
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
