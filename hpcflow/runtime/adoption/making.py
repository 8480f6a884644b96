"""Make a checkpoint of the run from one that the program has written."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from hpcflow.runtime.adoption.copying import take
from hpcflow.runtime.adoption.foreign import Foreign, look
from hpcflow.runtime.adoption.rule import AdoptRule
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.files import Written, names_in, random_bits, remove_tree
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import CheckpointError, read_manifest
from hpcflow.runtime.retention import Keeper, named
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import WarnOnce

#: The folder in a checkpoint with the adopted files, under the program's name.
FOLDER = "adopted"
#: Seconds between two tries after a failure: a disk stays full for a while.
_PAUSE_S = 60.0
#: Warn after this many discarded copies in a row.
_MANY_CHANGES = 3
_BROKEN = re.compile(r"\.\d{1,18}\.[0-9a-f]+\.broken", re.ASCII)


class Maker:
    """Copies, publishes and reports a checkpoint, and removes old ones by the retention rule."""

    def __init__(
        self,
        job: Job,
        store: CheckpointStore,
        rule: AdoptRule,
        warn: WarnOnce,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._store = store
        self._rule = rule
        self._warn = warn
        self._monotonic = monotonic
        self._events = EventLog(job.events)
        self._keeper = Keeper(job, self._events)
        self._not_before: dict[str, float] = {}
        self._changes: dict[str, int] = {}

    def make(self, foreign: Foreign, train_step: int | None, newest: int) -> int | None:
        """Adopt ``foreign``; return the train step of its checkpoint, or None after a failure.

        Args:
            train_step: its train step; None to count.
            newest: train step of the newest checkpoint; negative if there is none.
        """
        if self._monotonic() < self._not_before.get(foreign.name, 0.0):
            return None
        staged, number = None, train_step
        # Hard links take no space.
        size_bytes = 0 if self._rule.renamed else foreign.size_bytes
        try:
            require_no_successor(self._job)
            number = self._next_number() if train_step is None else train_step
            staged = self._store.stage(number, random_bits(62), size_bytes)
            made = self._make(foreign, number, staged, newest if train_step is None else None)
        except OSError as error:
            made = None
            self._has_failed(foreign, number, error)
        finally:
            if staged is not None:
                remove_tree(staged)  # gone if it was published
        return made

    def print_warnings(self) -> None:
        """Print the warnings of the keeper."""
        self._keeper.print_warnings()

    def _make(
        self, foreign: Foreign, number: int, staged: Path, maybe_same_as: int | None
    ) -> int | None:
        began = self._monotonic()
        name = f"{FOLDER}/{foreign.path.name}"
        files = take(foreign.path, staged, name, link=self._rule.renamed)
        if look(foreign.path, self._rule).state != foreign.state:
            self._has_changed(foreign)
            return None
        self._changes.pop(foreign.name, None)
        if maybe_same_as is not None and self._are_those_of(maybe_same_as, files):
            return maybe_same_as
        made = self._store.publish(
            staged,
            number,
            files,
            lambda: require_no_successor(self._job),
            metrics={},
            run_id=self._job.run_id,
            attempt=self._job.attempt,
            adopted={"name": foreign.name, "changed_ns": foreign.changed_ns},
        )
        self._events.append(
            "checkpoint",
            train_step=number,
            path=self._job.relative(made.path),
            size_bytes=made.size_bytes,
            write_s=round(self._monotonic() - began, 3),
        )
        self._keeper.tidy(number)
        return number

    def _next_number(self) -> int:
        """Return one more than the train step of any checkpoint, including those set aside."""
        if not self._store.folder.exists():
            return 1
        steps = named(self._store.folder)[-1:]
        steps += [int(name.split(".")[1]) for name in names_in(self._store.folder, _BROKEN)]
        return max(steps, default=0) + 1

    def _are_those_of(self, train_step: int, files: dict[str, Written]) -> bool:
        """Return whether the checkpoint of ``train_step`` has exactly these files."""
        try:
            entries = read_manifest(self._store.path(train_step)).get("files")
        except CheckpointError:
            return False
        return entries == {name: asdict(written) for name, written in files.items()}

    def _has_changed(self, foreign: Foreign) -> None:
        count = self._changes[foreign.name] = self._changes.get(foreign.name, 0) + 1
        if count == _MANY_CHANGES:
            self._warn(
                f"{foreign.name!r} was changed {count} times while it was copied; let the program "
                "save less often"
            )

    def _has_failed(self, foreign: Foreign, number: int | None, error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and not foreign.path.exists():
            return  # the program has removed it
        self._not_before[foreign.name] = self._monotonic() + _PAUSE_S
        is_new = self._warn(f"{foreign.name!r} is not adopted, the training continues: {error}")
        if is_new and number is not None:
            self._events.append("checkpoint_failed", train_step=number, why=str(error))
