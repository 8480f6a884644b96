"""Remove checkpoints from the store by retention: manifest first, so none is incomplete."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Set
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import from_text
from hpcflow.errors import MissingObjectError
from hpcflow.mirror.layout import MANIFEST, checkpoint_folder
from hpcflow.mirror.records import Records
from hpcflow.mirror.remote import Remote
from hpcflow.model.events import parse_event
from hpcflow.model.run import Mirror
from hpcflow.runtime.reading import read_lines
from hpcflow.storage.journal import checkpoint_history
from hpcflow.storage.layout import RunDir

_MADE: Final = "checkpoint"
_LET_GO: Final = "checkpoint_removed"


def to_remove(
    run_dir: RunDir, mirror: Mirror, records: Records, local: Set[int], now: datetime
) -> list[int]:
    """Return the train steps whose retention in the store is over, the oldest first.

    Only checkpoints that the run's retention, or a user, removed from the run directory. If a purge
    removed one, the store has the last copy, so it stays.

    Args:
        local: train steps in the run directory; they stay, because they would be sent again.
    """
    if mirror.keep_last is None and mirror.keep_for_s is None:
        return []
    newest_first = sorted(records.mirrored, reverse=True)
    kept = set(newest_first[: mirror.keep_last or 1]) | local
    since = now  # nothing is newer
    if mirror.keep_for_s is not None:
        since = now - timedelta(seconds=mirror.keep_for_s)
        kept |= {step for step, each in records.mirrored.items() if each.at >= since}
    in_question = [step for step in reversed(newest_first) if step not in kept]
    made, let_go = _told(run_dir, in_question)
    return [
        step
        for step in in_question
        if step in let_go
        and let_go[step] >= records.mirrored[step].at  # else it was made again
        # It cannot be mirrored before it was made: the clock of that pass was behind.
        and not (step in made and since <= made[step] < now)
    ]


def _told(
    run_dir: RunDir, in_question: Collection[int]
) -> tuple[dict[int, datetime], dict[int, datetime]]:
    """Return when these were made, and when they were removed from the run directory on purpose.

    Files are read by line: events of a long training have hundreds of megabytes.
    """
    made: dict[int, datetime] = {}
    let_go: dict[int, datetime] = {}
    if not in_question:
        return made, let_go
    asked = set(in_question)
    for each in checkpoint_history(run_dir).removed_checkpoints:
        _keep_latest(let_go, each.train_step, each.at, asked)
    for number in run_dir.attempt_numbers():
        with suppress(OSError):  # without a record, it was not removed on purpose
            for line in read_lines(run_dir.attempt(number).events):
                event = parse_event(line) if b'"checkpoint' in line else None
                step = None if event is None else event.get("train_step")
                if event is not None and type(step) is int and event["event"] in (_MADE, _LET_GO):
                    what = made if event["event"] == _MADE else let_go
                    with suppress(ValueError):
                        _keep_latest(what, step, from_text(event["at"]), asked)
    return made, let_go


def _keep_latest(
    what: dict[int, datetime], step: int, at: datetime, in_question: Collection[int]
) -> None:
    if step in in_question:
        what[step] = max(at, what.get(step, at))


def remove(remote: Remote, run_id: str, train_step: int, manifest_sha256: str) -> bool:
    """Remove a checkpoint from the store.

    Args:
        manifest_sha256: of the checkpoint that was sent.

    Returns:
        False, and nothing is changed, if the store has another checkpoint of this train step: the
        run continued elsewhere and made it there.
    """
    folder = checkpoint_folder(run_id, train_step)
    try:
        if hashlib.sha256(remote.read(folder + MANIFEST)).hexdigest() != manifest_sha256:
            return False
        remote.delete([folder + MANIFEST])
    except MissingObjectError:  # an earlier removal was killed
        pass
    remote.delete(list(remote.names(folder)))
    return True
