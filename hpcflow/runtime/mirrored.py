"""What the mirror says of a run's checkpoints, in ``mirror.jsonl`` in the run directory.

One JSON object on a line. Those that count here have ``at`` (UTC, RFC 3339), ``train_step``, and
``what``: ``began`` (it is being sent; written before a file of it is read, and now and then again),
then ``mirrored`` (the store has it, verified) or ``failed`` (with ``is_final`` where it will not be
tried again), both with the ``manifest_sha256`` of the checkpoint that they are about; ``removed``
(from the store, on purpose). Lines with the ``url`` of a store that the run does not use any more,
and any other line, a torn one too, are passed over.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from hpcflow.runtime.reading import (
    MAX_FILE_BYTES,
    MAX_JSON_BYTES,
    JsonError,
    parse_object,
    read_file,
    read_lines,
    read_object,
)

NAME = "mirror.jsonl"

#: Each line that counts has it. A store may have a file of millions of other lines.
IN_EACH = b'"train_step"'

#: An upload of which nothing was heard for so long has died. If it starts again, a line says so
#: again.
PATIENCE = timedelta(hours=6)


@dataclass(frozen=True)
class MirrorState:
    """Train steps of checkpoints, by what the mirror has to do with them.

    Attributes:
        there: the store has them.
        settled: the mirror will not send them any more: they are there, were removed there on
            purpose, or are damaged here.
        under_way: they are being sent.
    """

    there: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    under_way: frozenset[int] = frozenset()


def mirrored(run_dir: Path) -> set[int]:
    """Train steps of the checkpoints that the store has; none where there is no mirror."""
    return set(read_mirror(run_dir).there)


def read_mirror(run_dir: Path, now: datetime | None = None) -> MirrorState:
    """What is known of the mirror of a run; never raises, for a mirror is no condition.

    Args:
        now: aware; the time by which an upload is old.
    """
    now, url = now or datetime.now(timezone.utc), _url(run_dir)
    began: dict[int, datetime] = {}
    ended: dict[int, tuple[str, bool, str | None]] = {}  # the last word on each
    with suppress(OSError):
        for line in read_lines(run_dir / NAME, MAX_FILE_BYTES):
            if IN_EACH not in line:
                continue
            said = _parse(line)
            train_step, what = said.get("train_step"), said.get("what")
            if type(train_step) is not int or url not in (None, said.get("url", url)):
                continue
            if what == "began":
                began[train_step] = _time(said.get("at"))
            elif what in ("mirrored", "failed", "removed"):
                began.pop(train_step, None)
                sha256 = said.get("manifest_sha256")
                is_final = what != "failed" or bool(said.get("is_final"))
                ended[train_step] = (what, is_final, None if sha256 is None else str(sha256))
    there: set[int] = set()
    settled: set[int] = set()
    for train_step, (what, is_final, sha256) in ended.items():
        if not is_final or (what != "removed" and _is_of_another(sha256, run_dir, train_step)):
            continue
        settled.add(train_step)
        if what == "mirrored":
            there.add(train_step)
    under_way = {train_step for train_step, at in began.items() if now - at < PATIENCE}
    return MirrorState(frozenset(there), frozenset(settled), frozenset(under_way))


def _url(run_dir: Path) -> str | None:
    """The store that the run uses now; None where its ``run.json`` does not say."""
    try:
        return str(read_object(run_dir / "run.json")["mirror"]["url"]).rstrip("/")
    except (OSError, JsonError, KeyError, TypeError):
        return None


def _is_of_another(sha256: str | None, run_dir: Path, train_step: int) -> bool:
    """Whether the checkpoint here was created again since the mirror saw one of this train step."""
    if sha256 is None:
        return False
    manifest = run_dir / "checkpoints" / f"{train_step:09d}" / "manifest.json"
    if manifest.parent.is_symlink():  # no checkpoint of hpcflow
        return True
    try:
        return hashlib.sha256(read_file(manifest, MAX_JSON_BYTES)).hexdigest() != sha256
    except OSError:
        return False


def _parse(line: bytes) -> dict[str, Any]:
    try:
        return parse_object(line)
    except JsonError:
        return {}


def _time(text: object) -> datetime:
    """What is no time was long ago."""
    try:
        # The `Z` is for Python before 3.11.
        at = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return at.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=timezone.utc)
