"""Save and restore on all ranks together.

Between two train steps every rank captures its part: rank 0 the program's objects, each rank its
shards of them, its random state and its position in the data. A thread then writes this part while
the training continues. Threads never communicate with other ranks. The train loop does: the integer
that the ranks exchange at the end of every train step says whether this rank's part is written.
When all parts are, rank 0 publishes, again on its thread. If any failed, nothing becomes visible.

::

    train step     400      401      402      403      404
    train loop     capture
    rank 0's thread   writes its part ......   publishes
    rank 1's thread   writes its part ..
    rank 0 says             BUSY     NOTHING  BUSY     NOTHING
    rank 1 says             BUSY     NOTHING  NOTHING  NOTHING

On notice and at the end, the ranks wait for the save under way, and then save synchronously. After
each phase they exchange whether it worked, so all continue or all give up. If a rank died, the
exchange fails, and nothing is published.

Each other rank writes the checksums of its files, computed from the data in memory, to
``rank-00001.part`` in the hidden folder; rank 0 reads them there.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcflow.runtime.background import Background, processors
from hpcflow.runtime.files import NewFile, Written, random_bits, remove_tree, write_new
from hpcflow.runtime.host_copy import HostCopies
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import (
    Checkpoint,
    CheckpointError,
    finite,
    metrics_of,
    read_manifest,
)
from hpcflow.runtime.notice import BUSY, FAILED, NOTHING
from hpcflow.runtime.objects import Create, JsonPart, Part
from hpcflow.runtime.program_state import ProgramState
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.reading import JsonError, read_object
from hpcflow.runtime.restoring import Restored, choose, rank_file, read_rank_state
from hpcflow.runtime.retention import set_aside
from hpcflow.runtime.rule import name_of
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import warn

#: Threads of a rank that compute checksums while the train loop waits.
_MOST_HASHERS = 4

_EXISTS = 1
_ANOTHER = "another rank could not write"
_Facts = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Made:
    """A checkpoint that became visible.

    Attributes:
        held_s: how long the train loop waited for it.
        write_s: how long it then took until it was visible. Meanwhile the training continued,
            except on notice and at the end.
    """

    checkpoint: Checkpoint
    held_s: float
    write_s: float


@dataclass
class _Flight:
    """A checkpoint that is being made.

    Attributes:
        files: the files of this rank's part, once it is written.
        began, write_began: seconds of the monotonic clock.
        held_s: None while the train loop waits.
        work: the current or last work of this rank's thread.
        is_publishing: whether all parts are written, and rank 0 publishes.
        is_heard: whether the ranks' next exchange covers the current work.
        late_metrics: metrics logged for it since it was begun.
    """

    train_step: int
    staged: Path
    facts: dict[str, Any]
    trainer: threading.Thread
    began: float
    write_began: float = 0.0
    held_s: float | None = None
    files: dict[str, Written] = field(default_factory=dict)
    work: Background | None = None
    is_publishing: bool = False
    is_heard: bool = False
    late_metrics: dict[str, float] | None = None


class Saving:
    """Makes and restores the checkpoints of this run.

    Args:
        announce: called on rank 0, by the thread that published it, with each new checkpoint.
        add_metrics: called on rank 0, by the thread that trains, with the train step of a visible
            checkpoint and the metrics logged for it since it was begun.
        report_failed: called on rank 0, by the thread that trains, with the train step of a
            checkpoint that failed in the background, and the reason.

    Attributes:
        saved_at: train step of the newest checkpoint that is known to be visible.
    """

    def __init__(
        self,
        job: Job,
        folder: Path,
        ranks: Ranks,
        announce: Callable[[Made], None],
        add_metrics: Callable[[int, dict[str, float]], None],
        report_failed: Callable[[int, str], None],
    ) -> None:
        self._job = job
        self._ranks = ranks
        self._announce = announce
        self._add_metrics = add_metrics
        self._report_failed = report_failed
        self._store = CheckpointStore(folder)
        self._state = ProgramState({}, ranks)
        self._copies = HostCopies()
        self._flight: _Flight | None = None
        self.saved_at: int | None = None

    def register(self, objects: dict[str, Any]) -> None:
        """Set the objects of every later checkpoint. All ranks call it together.

        Raises:
            TypeError: an object is of a kind that cannot be saved.
        """
        self._state = ProgramState(objects, self._ranks)

    def model_path(self, train_step: int) -> Path:
        """Return the path of the model: the file of the object ``model``, else the checkpoint."""
        return self._state.path("model", self._store.path(train_step))

    @property
    def is_under_way(self) -> bool:
        """Return whether a checkpoint is being made; the same on all ranks."""
        return self._flight is not None

    def has(self, train_step: int) -> bool:
        """Return whether the checkpoint of ``train_step`` is visible, or being made."""
        return train_step == (self._flight.train_step if self._flight else self.saved_at)

    def add_metrics(self, train_step: int, metrics: dict[str, float]) -> None:
        """Add ``metrics`` to the checkpoint of ``train_step``, once it is visible. For rank 0."""
        if self._flight is not None:
            self._flight.facts["metrics"] = finite(metrics)  # in time if no manifest is written yet
            self._flight.late_metrics = metrics
        else:
            self._add_metrics(train_step, metrics)

    def status(self) -> int:
        """Return the state of this rank's work on a checkpoint: BUSY, FAILED, or NOTHING."""
        work = self._flight.work if self._flight else None
        if work is None:
            return NOTHING
        if not work.is_done():
            return BUSY
        return NOTHING if work.error is None else FAILED

    def advance(self, agreed: int) -> None:
        """Advance the checkpoint under way, after the ranks have exchanged ``agreed``."""
        flight = self._flight
        if flight is None:
            return
        if not flight.is_heard:
            flight.is_heard = True
        elif agreed == FAILED:
            self._give_up(flight)
        elif agreed < FAILED and flight.is_publishing:
            self._succeed(flight)
        elif agreed < FAILED:
            flight.is_publishing, flight.is_heard = True, False
            if self._ranks.rank == 0:
                flight.work = Background(lambda: self._publish(flight))

    def begin(self, train_step: int, rank_state: dict[str, Any], facts: _Facts) -> None:
        """Capture the state after ``train_step``, and write it while the training continues.

        Waits for a checkpoint under way first. All ranks call it together.

        Args:
            facts: returns further keys of the manifest; not called if there is nothing to do.

        Raises:
            CheckpointError: on all ranks: the save could not begin.
        """
        flight = self._stage(train_step, facts)
        if flight is None:
            return
        parts = self._capture(flight, rank_state, self._copies)
        flight.write_began = time.monotonic()
        flight.held_s = flight.write_began - flight.began
        # Without other ranks, one piece of work writes and publishes.
        is_alone = self._ranks.world_size == 1
        flight.is_publishing = is_alone
        self._flight = flight

        def work() -> None:
            if self._ranks.rank == 0:
                self._store.require_quota()  # runs a program that may take seconds
            self._write(flight, parts, hashers=1)  # leaves the other processors to the training
            if is_alone:
                self._publish(flight)

        flight.work = Background(work)

    def save(self, train_step: int, rank_state: dict[str, Any], facts: _Facts) -> None:
        """Save the checkpoint of ``train_step``; it is visible when this returns.

        Args:
            facts: as for :meth:`begin`.

        Raises:
            CheckpointError: on all ranks: the save failed; nothing became visible.
        """
        flight = self._stage(train_step, facts)
        if flight is None:
            return
        parts = self._capture(flight, rank_state, None)
        flight.write_began = time.monotonic()
        try:
            hashers = min(_MOST_HASHERS, processors())
            self._together(lambda: self._write(flight, parts, hashers=hashers))
            self._together(lambda: self._publish(flight))
        except CheckpointError:
            self._remove(flight)
            raise
        self._succeed(flight)

    def finish(self) -> None:
        """Wait until the checkpoint under way is visible or failed. All ranks call it together."""
        flight = self._flight
        if flight is None or flight.work is None:
            return
        flight.work.wait()
        if self._ranks.max(self.status()) == FAILED:
            self._give_up(flight)
            return
        try:
            if not flight.is_publishing:
                self._together(lambda: self._publish(flight))
        except CheckpointError as error:
            self._give_up(flight, str(error))
        else:
            self._succeed(flight)

    def close(self) -> None:
        """Free the memory of the copies, after the last save."""
        self._copies.free()

    def restore(self) -> Restored | None:
        """Load the newest intact checkpoint into the objects; the same one on all ranks.

        From a checkpoint of another run, which is train step 0 of this one, load only weights.

        Raises:
            CheckpointError: the checkpoint holds other objects, or a later attempt executes the
                run.
        """
        self._together(self._clean)
        job = self._job
        path = choose(self._store, job.resume_from, self._ranks, job.verified, begin=job.begin_from)
        if path is None:
            return None
        self._set_aside_damaged()
        if path == job.begin_from and path.name == name_of(0):
            self._state.load_weights(path)
            return Restored(path, 0, {}, None, [], {})
        manifest = read_manifest(path)
        train_step = manifest["train_step"]
        shared = read_rank_state(path, 0) or {}
        own = read_rank_state(path, self._ranks.rank)
        saved_by = shared.get("world_size", self._ranks.world_size)
        is_same_size = saved_by == self._ranks.world_size
        if not is_same_size:
            if self._ranks.rank == 0:
                warn(
                    f"saved by {saved_by} rank{'s' * (saved_by != 1)}, resumed by "
                    f"{self._ranks.world_size}: the training continues, but with other random "
                    "numbers"
                )
            own = None
        placed = self._state.load(path, is_same_size=is_same_size)
        is_own = path == self._store.path(train_step)
        if is_own:
            self.saved_at = train_step
        metrics = metrics_of(manifest) if is_own else {}
        return Restored(path, train_step, shared, own, placed, metrics)

    def _set_aside_damaged(self) -> None:
        """Set aside, on rank 0, the checkpoints that any rank has found damaged."""
        left = {1 + train_step for train_step in self._store.damaged}
        damaged = []
        while True:
            newest = self._ranks.max(max(left, default=0))
            if newest == 0:
                break
            left.discard(newest)
            damaged.append(newest - 1)
        if self._ranks.rank == 0:
            set_aside(self._store.folder, damaged, self._job)

    def _clean(self) -> None:
        if self._ranks.rank == 0:
            self._store.clean(lambda: require_no_successor(self._job))

    def _stage(self, train_step: int, ask_facts: _Facts) -> _Flight | None:
        """Wait for the save under way, and create the hidden folder; None if already saved."""
        began = time.monotonic()
        self.finish()
        if self.saved_at == train_step:
            return None
        token, refused = 0, None
        if self._ranks.rank == 0:
            try:
                require_no_successor(self._job)
                token = _EXISTS
                if not self._store.knows(train_step):
                    token += 1 + random_bits(30)  # some frameworks have only 32 bits
                    self._store.stage(train_step, token)
            except OSError as error:
                token, refused = 0, error
        token = self._ranks.max(token)  # part of the folder's name on all ranks
        if token == 0:
            raise CheckpointError(str(refused or "rank 0 could not begin")) from refused
        if token == _EXISTS:
            self.saved_at = train_step
            return None
        facts = {**ask_facts(), "world_size": self._ranks.world_size}
        facts.update(run_id=self._job.run_id, attempt=self._job.attempt)
        staged = self._store.staging_path(train_step, token)
        return _Flight(train_step, staged, facts, threading.current_thread(), began)

    def _capture(
        self, flight: _Flight, rank_state: dict[str, Any], copies: HostCopies | None
    ) -> list[Part]:
        """Capture this rank's part; with ``copies``, copy it, so that training can continue."""
        state = {**rank_state, "world_size": self._ranks.world_size}
        parts: list[Part] = [JsonPart(rank_file(self._ranks.rank), json.dumps(state))]
        self._copies.restart()
        try:
            parts += self._state.capture(flight.staged, copies)
        except OSError as error:
            return [_Refused(str(error))]
        finally:
            self._copies.wait()
        return parts

    def _write(self, flight: _Flight, parts: list[Part], *, hashers: int) -> None:
        def must_stop() -> bool:
            """Stop once the program has ended: one of several ranks cannot publish alone."""
            return self._ranks.world_size > 1 and not flight.trainer.is_alive()

        def create(path: Path) -> NewFile:
            return NewFile(path, must_stop, hashers=hashers)

        for part in parts:
            flight.files.update(part.write(flight.staged, create))
        if self._ranks.rank != 0:
            entries = {name: asdict(written) for name, written in flight.files.items()}
            path = flight.staged / _part_file(self._ranks.rank)
            write_new(path, json.dumps(entries).encode())

    def _publish(self, flight: _Flight) -> None:
        if self._ranks.rank != 0:
            return
        for rank in range(1, self._ranks.world_size):
            path = flight.staged / _part_file(rank)
            try:
                for name, entry in read_object(path).items():
                    flight.files[name] = Written(**entry)
            except (TypeError, JsonError) as error:
                raise OSError(f"{path} is not what rank {rank} wrote: {error}") from error
            path.unlink()
        made = self._store.publish(
            flight.staged,
            flight.train_step,
            flight.files,
            lambda: require_no_successor(self._job),
            **flight.facts,
        )
        now = time.monotonic()
        held_s = now - flight.began if flight.held_s is None else flight.held_s
        self._announce(Made(made, held_s, now - flight.write_began))

    def _succeed(self, flight: _Flight) -> None:
        self._flight = None
        self.saved_at = flight.train_step
        if flight.late_metrics is not None:
            self._add_metrics(flight.train_step, flight.late_metrics)

    def _give_up(self, flight: _Flight, reason: str | None = None) -> None:
        self._flight = None
        self._remove(flight)
        if self._ranks.rank == 0:
            reason = reason or (flight.work.error if flight.work else None) or _ANOTHER
            self._report_failed(flight.train_step, reason)

    def _remove(self, flight: _Flight) -> None:
        if self._ranks.rank == 0:
            remove_tree(flight.staged)

    def _together(self, work: Callable[[], None]) -> None:
        """Do ``work`` on every rank; raise CheckpointError on all if any of them got an OSError."""
        refused: OSError | None = None
        try:
            work()
        except OSError as error:
            refused = error
        if self._ranks.max(int(refused is not None)):
            raise CheckpointError(str(refused or _ANOTHER)) from refused


@dataclass(frozen=True)
class _Refused:
    """A part that could not be captured. Its write fails, so the ranks exchange the failure."""

    reason: str

    def write(self, _folder: Path, _create: Create, /) -> dict[str, Written]:
        raise OSError(self.reason)


def _part_file(rank: int) -> str:
    return f"rank-{rank:05d}.part"
