"""Compute the lag of each run's mirror from its files; the store is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hpcflow.mirror.progress import under_way
from hpcflow.mirror.small_files import due_files
from hpcflow.mirror.survey import Survey, survey
from hpcflow.storage.layout import RunDir


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
