"""Read from ``mirror.jsonl`` when a store had which checkpoints, and what was fetched. Pure.

:mod:`hpcflow.mirror.records` documents the lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hpcflow.clock import from_text
from hpcflow.mirror.records import FAILED, MIRRORED, READ, REMOVED, count, text
from hpcflow.runtime.mirrored import IN_EACH
from hpcflow.runtime.reading import parse_object


@dataclass(frozen=True)
class Kept:
    """A checkpoint that a store had.

    Attributes:
        begin: when it was complete there.
        end: when it was removed, replaced or found damaged; None while the store has it.
    """

    url: str
    train_step: int
    size_bytes: int
    begin: datetime
    end: datetime | None = None


@dataclass(frozen=True)
class Read:
    """Bytes that were fetched from a store to verify them."""

    url: str
    train_step: int
    size_bytes: int
    at: datetime


@dataclass
class History:
    """The history of a ``mirror.jsonl``.

    Attributes:
        sizes: train step -> last known size.
    """

    kept: list[Kept] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)


def history_of(lines: Iterable[bytes]) -> History:
    """Return the history in these lines; invalid lines are ignored."""
    found = History()
    there: dict[tuple[str, int], Kept] = {}
    for line in lines:
        if IN_EACH not in line:
            continue
        try:
            _add(found, there, parse_object(line))
        except (ValueError, KeyError, TypeError):  # torn or not valid
            continue
    found.kept += there.values()
    return found


def _add(found: History, there: dict[tuple[str, int], Kept], said: Any) -> None:
    what, url, step = said["what"], text(said["url"]), count(said["train_step"])
    at = from_text(text(said["at"]))
    if what == READ:
        found.read.append(Read(url, step, count(said["size_bytes"]), at))
    new = Kept(url, step, count(said["size_bytes"]), at) if what == MIRRORED else None
    if what in (MIRRORED, REMOVED, FAILED):
        old = there.pop((url, step), None)
        if old is not None:
            found.kept.append(replace(old, end=max(old.begin, at)))  # clocks differ
    if new is not None:
        there[url, step] = new
        found.sizes[step] = new.size_bytes
