"""The lag of a run's mirror, and the progress of its upload, from its files alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hpcflow.clock import Clock
from hpcflow.mirror.small_files import due_files
from hpcflow.mirror.survey import Survey, survey
from hpcflow.runtime.reading import read_json
from hpcflow.storage.files import FILE_MODE
from hpcflow.storage.layout import RunDir

_EVERY_S: Final = 1.0


@dataclass(frozen=True)
class UnderWay:
    """The progress of an upload, which may have been killed since."""

    train_step: int
    sent_bytes: int
    size_bytes: int


class Progress:
    """Writes the progress of an upload about once a second, during a ``with`` block."""

    def __init__(self, run_dir: RunDir, train_step: int, size_bytes: int, clock: Clock) -> None:
        self._path, self._clock = run_dir.mirror_progress, clock
        self._train_step, self._size_bytes = train_step, size_bytes
        self._sent_bytes, self._written_at_s = 0, clock.monotonic()

    def add(self, size_bytes: int) -> None:
        """Count bytes as sent. Called by one thread at a time."""
        self._sent_bytes += size_bytes
        if self._clock.monotonic() - self._written_at_s >= _EVERY_S:
            self._written_at_s = self._clock.monotonic()
            self._write()

    def __enter__(self) -> Progress:
        self._write()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._path.unlink()

    def _write(self) -> None:
        said = [self._train_step, self._sent_bytes, self._size_bytes]
        aside = self._path.with_suffix(".tmp")
        # Best effort: not synced, and errors are ignored.
        with suppress(OSError):
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(said))
            aside.replace(self._path)


def under_way(run_dir: RunDir) -> UnderWay | None:
    """Return the progress of the active or killed upload; None if there is none."""
    try:
        train_step, sent_bytes, size_bytes = read_json(run_dir.mirror_progress)
        return UnderWay(int(train_step), int(sent_bytes), int(size_bytes))
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class Status:
    """The mirror of one run.

    Attributes:
        newest: train step of the newest complete checkpoint here; None if there is none.
        mirrored: train step of the newest checkpoint in the store.
        lag_s: seconds since the run has a newer checkpoint than the store; 0 if it has none.
        size_bytes: of all complete checkpoints here.
        to_go_bytes: of those, the size not yet sent.
        sending: train step of the checkpoint that is being sent, if any.
        problem: why the newest was not sent; or why the last pass could send nothing.
    """

    run_id: str
    url: str | None
    newest: int | None
    mirrored: int | None
    mirrored_at: datetime | None
    lag_s: float
    size_bytes: int
    to_go_bytes: int
    sending: int | None
    problem: str | None


def status_of(run_dir: RunDir, now: datetime, problems: Mapping[str, str]) -> Status | None:
    """Return the status of a run's mirror; None if it has none.

    Args:
        problems: errors of the last pass: :func:`hpcflow.mirror.store_memory.read_problems`.
    """
    seen = survey(run_dir)
    if seen is None:
        return None
    known, here = seen.records.mirrored, seen.local
    there = max(
        (step for step in known if step not in here or seen.is_mirrored(here[step])), default=None
    )
    to_go_bytes = sum(each.size_bytes for each in seen.due)
    sending, moving = None, under_way(run_dir)
    if moving is not None and any(each.train_step == moving.train_step for each in seen.due):
        sending = moving.train_step
        to_go_bytes -= min(to_go_bytes, moving.sent_bytes)
    return Status(
        run_id=seen.run_id,
        url=seen.mirror.url,
        newest=max(seen.local, default=None),
        mirrored=there,
        mirrored_at=known[there].at if there is not None else None,
        lag_s=_lag_s(seen, now),
        size_bytes=sum(each.size_bytes for each in seen.local.values()),
        to_go_bytes=to_go_bytes,
        sending=sending,
        problem=(None if sending is not None else _refused(seen, problems, now)) or _problem(seen),
    )


def unknown_status(run_dir: RunDir, why: str) -> Status:
    """Return the status of a run whose files cannot be read."""
    return Status(
        run_id=run_dir.path.name,
        url=None,
        newest=None,
        mirrored=None,
        mirrored_at=None,
        lag_s=0.0,
        size_bytes=0,
        to_go_bytes=0,
        sending=None,
        problem=why,
    )


def _lag_s(seen: Survey, now: datetime) -> float:
    """Return the age of the oldest checkpoint newer than the store's, by its manifest's mtime.

    A checkpoint does not count if a later train step was mirrored after it was made. A run that
    continues from an older checkpoint makes lower train steps later.
    """
    there = seen.records.mirrored.items()
    made = [
        each.made_at.timestamp()
        for each in seen.local.values()
        if not seen.is_mirrored(each)
        and not any(step > each.train_step and sent.at >= each.made_at for step, sent in there)
    ]
    return max(0.0, now.timestamp() - min(made)) if made else 0.0


def _problem(seen: Survey) -> str | None:
    for step in sorted({*seen.local, *seen.broken}, reverse=True):
        if step in seen.broken:
            return f"train step {step}: {seen.broken[step].why}"
        local = seen.local[step]
        if seen.is_mirrored(local):
            return None
        why = seen.why_damaged(local) or seen.records.failed.get(step)
        if why is not None:
            return f"train step {step}: {why}"
    return None


def _refused(seen: Survey, problems: Mapping[str, str], now: datetime) -> str | None:
    """Return the last pass's error for the run or its store, if the run has anything to send."""
    why = problems.get(seen.mirror.url) or problems.get(seen.run_id)
    if why is None:
        return None
    url = seen.mirror.url.rstrip("/")
    return why if seen.due or due_files(seen.run_dir, url, now.timestamp()) else None
