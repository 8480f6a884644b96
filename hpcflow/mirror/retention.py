"""Which checkpoints leave the store, and how: manifest first, so that none is ever half there."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime, timedelta

from hpcflow.mirror.layout import MANIFEST, checkpoint_folder
from hpcflow.mirror.records import Records
from hpcflow.mirror.remote import Remote
from hpcflow.model.run import Mirror


def to_remove(mirror: Mirror, records: Records, local: Set[int], now: datetime) -> list[int]:
    """Train steps of the checkpoints that nothing keeps in the store any more, the oldest first.

    Args:
        local: train steps that the run directory still has: those stay, for their rule kept them
            there, and they would only be sent again.
    """
    if mirror.keep_last is None and mirror.keep_for_s is None:
        return []
    newest_first = sorted(records.mirrored, reverse=True)
    kept = set(newest_first[: mirror.keep_last or 1]) | local
    if mirror.keep_for_s is not None:
        since = now - timedelta(seconds=mirror.keep_for_s)
        kept |= {step for step, each in records.mirrored.items() if each.at >= since}
    return [step for step in reversed(newest_first) if step not in kept]


def remove(remote: Remote, run_id: str, train_step: int) -> None:
    """Remove a checkpoint from the store.

    Raises:
        MirrorError: the store.
    """
    folder = checkpoint_folder(run_id, train_step)
    remote.delete([folder + MANIFEST])
    remote.delete(list(remote.names(folder)))
