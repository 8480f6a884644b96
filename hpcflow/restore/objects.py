"""Select the objects of a run that are fetched as files. Pure.

Other users may write names into a store. So only names that a run directory has are accepted, and
only if they are valid file names that stay in it.
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
#: Enough for 20,000 checkpoints. A larger one is not restored; the store is asked instead.
_MAX_MIRROR_BYTES: Final = 16 << 20
_MAX_NAME_BYTES: Final = 255  # of Linux
_MAX_PATH_BYTES: Final = 2048  # Linux's limit is 4096, which includes the run directory
#: Other files are not fetched: jobs execute the copy of the runtime, so it comes from this hpcflow;
#: other frozen files are written from run.json.
_WANTED: Final = re.compile(
    rf"(?:{re.escape(RUN_JSON)}|{re.escape(JOURNAL)}|mirror\.jsonl"
    r"|attempts/\d{4,6}/(?:job\.sbatch|out\.log|events\.jsonl|claim)"
    r"|start/\d{1,18}/.+|(?:code|artifacts|tensorboard)/.+)",
    re.ASCII | re.DOTALL,
)
_OF_CHECKPOINT: Final = re.compile(r"checkpoints/(\d{9}|[1-9]\d{9,17})/(.+)", re.ASCII | re.DOTALL)
#: Files that hpcflow reads, so their size is limited.
_LIMITED: Final = re.compile(
    r"mirror\.jsonl|attempts/\d+/(?:job\.sbatch|events\.jsonl|claim)", re.ASCII
)
OF_ATTEMPT: Final = re.compile(r"attempts/(\d{4,6})/(.+)", re.ASCII | re.DOTALL)
EVENTS: Final = re.compile(r"attempts/(\d{4,6})/events\.jsonl", re.ASCII)


@dataclass(frozen=True)
class Objects:
    """The objects of one run.

    Attributes:
        small: name in the run directory -> object that belongs to no checkpoint.
        checkpoints: train step -> name in the checkpoint's folder -> object, the newest first; only
            checkpoints with a manifest. Their names are checked when the manifest is read.
        refused: names that are not safe, quoted.
    """

    small: Mapping[str, Entry] = field(default_factory=dict)
    checkpoints: Mapping[int, Mapping[str, Entry]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def sort_out(names: Mapping[str, Entry]) -> Objects:
    """Sort the objects of a run by kind.

    Args:
        names: name below the run's folder -> object.
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
    """Return why ``name`` is not a safe relative path; None if it is safe."""
    try:
        coded = name.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
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
    """Return the names whose parent folder is a file by another name."""
    return {
        name
        for name in names
        if any(name[:end] in names for end, char in enumerate(name) if char == "/")
    }
