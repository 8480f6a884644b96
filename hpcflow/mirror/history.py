"""Read ``mirror.jsonl``: which checkpoints a store had, from when to when, and what was fetched.

Pure. What the lines are is told in :mod:`hpcflow.mirror.records`.
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
        begin: when all of it was there.
        end: when it was removed, replaced, or found not to be as it was copied; None while it is
            there.
    """

    url: str
    train_step: int
    size_bytes: int
    begin: datetime
    end: datetime | None = None


@dataclass(frozen=True)
class Read:
    """Bytes that were fetched from a store only to see that they are what was sent."""

    url: str
    train_step: int
    size_bytes: int
    at: datetime


@dataclass
class History:
    """What the lines say, in their order.

    Attributes:
        sizes: the last that is known of each train step.
    """

    kept: list[Kept] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)


def history_of(lines: Iterable[bytes]) -> History:
    """The history that these lines tell; those that are torn, foreign or newer say nothing."""
    found = History()
    there: dict[tuple[str, int], Kept] = {}
    for line in lines:
        if IN_EACH not in line:
            continue
        try:
            _add(found, there, parse_object(line))
        except (ValueError, KeyError, TypeError):  # torn, or foreign
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
