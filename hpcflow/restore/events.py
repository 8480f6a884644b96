"""What a store says of how a job began and ended, which is not believed.

Where the journal does not say how an attempt ended, its events would: users who can write to the
store could complete a run. So their lines of that kind are not fetched, and Slurm is asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hpcflow.model.events import parse_event
from hpcflow.model.journal import Ended, JournalRecord, Standby, Submitted, Withdrawn
from hpcflow.runtime.reading import read_lines
from hpcflow.storage.files import storage_error

_OWN_WORD: Final = frozenset({"started", "exited"})
#: What is kept of `finished`, as progress.
_RESULT: Final = ("at", "train_step", "metrics")


def with_job(records: Iterable[JournalRecord]) -> set[int]:
    """Return the attempts that were a job: of others a store has nothing to say."""
    return {each.attempt for each in records if isinstance(each, Submitted)}


def without_end(records: Iterable[JournalRecord]) -> set[int]:
    """Return the attempts that were a job, and of which no end is known."""
    ends = {each.attempt for each in records if isinstance(each, Ended)}
    return with_job(records) - ends


def withdrawn(records: Iterable[JournalRecord]) -> set[int]:
    """Return the attempts, and standbys, whose job may still appear, and must then leave."""
    found = set()
    for record in records:
        said = record.says if isinstance(record, Standby) else record
        if isinstance(said, Withdrawn):
            found.add(said.attempt)
        elif isinstance(said, Submitted):
            found.discard(said.attempt)
    return found


def remove_own_word(path: Path) -> None:
    """Remove from a fetched file of events those with which a job says that it began, or ended.

    The result of a program that finished becomes progress.

    Raises:
        StorageError: the file cannot be read or written.
    """
    kept = path.with_name(f".{path.name}.kept")
    try:
        with kept.open("wb") as file:
            for line in read_lines(path):
                event = parse_event(line)
                if event is None or event["event"] in _OWN_WORD:
                    continue
                if event["event"] == "finished":
                    result = {key: event[key] for key in _RESULT if key in event}
                    line = json.dumps({**result, "event": "progress"}).encode()
                file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        kept.replace(path)
    except OSError as error:
        raise storage_error("write", kept, error) from error
