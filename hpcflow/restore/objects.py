"""Select the objects of a run that are fetched as files. Pure.

Names in a store are anybody's to write. Only what a run directory has is taken, and of that
nothing which could lead out of it, or which no file can be called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from hpcflow.mirror.layout import MANIFEST, RUN_JSON
from hpcflow.mirror.remote import Entry
from hpcflow.runtime.reading import MAX_LINES_FILE_BYTES

JOURNAL: Final = "journal.jsonl"
MIRROR: Final = "mirror.jsonl"
CLAIM: Final = "claim"
#: Enough for 20,000 checkpoints; it is read often. Instead of a larger one the store is asked.
_MAX_MIRROR_BYTES: Final = 16 << 20
_MAX_NAME_BYTES: Final = 255  # of Linux
_MAX_PATH_BYTES: Final = 2048  # 4096 is Linux's, and a run directory comes before
#: Of the rest, the runtime's copy is put there from this hpcflow: it is what jobs execute. What is
#: frozen beside run.json is written from that.
_WANTED: Final = re.compile(
    rf"(?:{re.escape(RUN_JSON)}|{re.escape(JOURNAL)}|mirror\.jsonl"
    r"|attempts/\d{4,6}/(?:job\.sbatch|out\.log|events\.jsonl|claim)"
    r"|start/\d{1,18}/.+|(?:code|artifacts|tensorboard)/.+)",
    re.ASCII | re.DOTALL,
)
_OF_CHECKPOINT: Final = re.compile(r"checkpoints/(\d{9}|[1-9]\d{9,17})/(.+)", re.ASCII | re.DOTALL)
#: What is read line by line, or as a whole, when it is here.
_LIMITED: Final = re.compile(
    r"mirror\.jsonl|attempts/\d+/(?:job\.sbatch|events\.jsonl|claim)", re.ASCII
)
OF_ATTEMPT: Final = re.compile(r"attempts/(\d{4,6})/(.+)", re.ASCII | re.DOTALL)
EVENTS: Final = re.compile(r"attempts/(\d{4,6})/events\.jsonl", re.ASCII)


@dataclass(frozen=True)
class Objects:
    """The objects of one run, sorted out.

    Attributes:
        small: those that belong to no checkpoint, by their names in the run directory.
        checkpoints: train step -> name in the checkpoint's folder -> object, the newest first; only
            those with a manifest. Whether the names are safe, the manifest's reader says.
        refused: names that no file of a run may have, as they can be shown.
    """

    small: Mapping[str, Entry] = field(default_factory=dict)
    checkpoints: Mapping[int, Mapping[str, Entry]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def sort_out(names: Mapping[str, Entry]) -> Objects:
    """Sort the objects of a run out.

    Args:
        names: all of them, by their names below the run's own folder.
    """
    small: dict[str, Entry] = {}
    found: dict[int, dict[str, Entry]] = {}
    refused: list[str] = []
    for name, entry in names.items():
        if match := _OF_CHECKPOINT.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = entry
        elif why_unsafe(name) is not None:
            refused.append(repr(name)[:200])
        elif _WANTED.fullmatch(name):
            if is_too_large(name, entry.size_bytes):
                refused.append(f"{name!r}, which is too large: hpcflow did not write it")
            else:
                small[name] = entry
    impossible = below_files(small)
    refused += [repr(name)[:200] for name in sorted(impossible)]
    small = {name: entry for name, entry in small.items() if name not in impossible}
    whole = {step: found[step] for step in sorted(found, reverse=True) if MANIFEST in found[step]}
    return Objects(small, whole, refused)


def is_too_large(name: str, size_bytes: int) -> bool:
    """Return whether a small file of a run has more bytes than hpcflow writes or reads."""
    most_bytes = _MAX_MIRROR_BYTES if name == MIRROR else MAX_LINES_FILE_BYTES
    return size_bytes > most_bytes and _LIMITED.fullmatch(name) is not None


def why_unsafe(name: str) -> str | None:
    """Why ``name`` cannot be that of a file below some folder; None where it can."""
    try:
        coded = name.encode()
    except UnicodeEncodeError:
        return "is no UTF-8 text"
    if len(coded) > _MAX_PATH_BYTES or any(
        len(part.encode()) > _MAX_NAME_BYTES for part in name.split("/")
    ):
        return "is too long"
    if any(char < " " or char == "\x7f" for char in name):
        return "holds a control character"
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        return "leads out of its folder"
    return None


def below_files(names: Set[str] | Mapping[str, object]) -> set[str]:
    """Those of ``names`` that would lie in a folder which is a file by another of them."""
    return {
        name
        for name in names
        if any(name[:end] in names for end, char in enumerate(name) if char == "/")
    }
