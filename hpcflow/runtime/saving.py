"""Saving and restoring on all ranks together.

Rank 0 writes the program's objects, every rank a small file of its own (random number generators,
place in the data), rank 0 publishes. After each of these phases the ranks tell each other whether
it worked, so all go on or all give up; a rank that died makes the exchange fail, and nothing is
published.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcflow.runtime.files import remove_tree, write_new
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import Checkpoint, CheckpointError, verify
from hpcflow.runtime.objects import check_object, file_name, load_object, save_object
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.warn import warn

_EXISTS = 1


@dataclass(frozen=True)
class Restored:
    """What the program goes on from.

    Attributes:
        is_own: whether it lies among this run's checkpoints.
        shared_state: the state of rank 0; empty when there is none.
        rank_state: the state of this rank; None when there is none, or the ranks were others.
    """

    path: Path
    is_own: bool
    train_step: int
    shared_state: dict[str, Any]
    rank_state: dict[str, Any] | None


class Saving:
    """The checkpoints of this run, and the objects that go into them."""

    def __init__(self, job: Job, folder: Path, ranks: Ranks) -> None:
        self._job = job
        self._ranks = ranks
        self._store = CheckpointStore(folder)
        self._objects: dict[str, Any] = {}

    def register(self, objects: dict[str, Any]) -> None:
        """What every checkpoint from now on holds.

        Raises:
            TypeError: an object is of no kind that can be saved.
        """
        for name, obj in objects.items():
            check_object(name, obj)
        self._objects = dict(objects)

    def model_path(self, train_step: int) -> Path:
        """What to call the model: the file of the object ``model``, or else the checkpoint."""
        path = self._store.path(train_step)
        model = self._objects.get("model")
        return path if model is None else path / file_name("model", model)

    def save(
        self, train_step: int, rank_state: dict[str, Any], epoch: float | None, **facts: Any
    ) -> Checkpoint | None:
        """Make the checkpoint of ``train_step`` on all ranks; None when there is one already.

        Returns:
            The checkpoint on rank 0, on all others None.

        Raises:
            CheckpointError: it could not be made, on all ranks; nothing became visible.
        """
        token = self._begin(train_step)
        if token == _EXISTS:
            return None
        staged = self._store.staging_path(train_step, token)
        made: list[Checkpoint] = []

        def publish() -> None:
            if self._ranks.rank == 0:
                facts.update(world_size=self._ranks.world_size, epoch=epoch)
                facts.update(run_id=self._job.run_id, attempt=self._job.attempt)
                made.append(self._store.publish(staged, train_step, **facts))

        try:
            self._together(lambda: self._write(staged, rank_state))
            self._together(publish)
        except CheckpointError:
            if self._ranks.rank == 0:
                remove_tree(staged)
            raise
        return made[0] if made else None

    def restore(self) -> Restored | None:
        """Load the newest whole checkpoint into the objects; the same one on all ranks.

        Raises:
            CheckpointError: the checkpoint does not hold these objects.
        """
        path = self._choose()
        if path is None:
            return None
        for name, obj in self._objects.items():
            load_object(name, obj, path)
        train_step = json.loads((path / "manifest.json").read_bytes())["train_step"]
        shared = _read_rank_file(path, 0) or {}
        own = _read_rank_file(path, self._ranks.rank)
        saved_by = shared.get("world_size", self._ranks.world_size)
        if saved_by != self._ranks.world_size:
            if self._ranks.rank == 0:
                warn(
                    f"saved by {saved_by} ranks, resumed by {self._ranks.world_size}: training "
                    "goes on from there, but its random numbers are others"
                )
            own = None
        is_own = path == self._store.path(train_step)
        return Restored(path, is_own, train_step, shared, own)

    def _choose(self) -> Path | None:
        """The checkpoint that rank 0 verified, on all ranks."""
        hint = self._job.resume_from
        choice = 0
        if self._ranks.rank == 0:
            self._store.clean()
            newest = self._store.newest()
            if newest is not None:
                choice = 2 + newest.train_step
            elif hint is not None and _is_whole(hint):
                choice = 1
        choice = self._ranks.max(choice)
        if choice == 0:
            return None
        return hint if choice == 1 else self._store.path(choice - 2)

    def _begin(self, train_step: int) -> int:
        """A number that all ranks name the hidden folder by; _EXISTS if there is nothing to do."""
        token = 0

        def stage() -> None:
            nonlocal token
            if self._ranks.rank == 0 and self._store.has(train_step):
                token = _EXISTS
            elif self._ranks.rank == 0:
                token = _EXISTS + 1 + secrets.randbits(30)  # some frameworks have 32 bits only
                self._store.stage(train_step, token)

        self._together(stage)
        return self._ranks.max(token)

    def _write(self, staged: Path, rank_state: dict[str, Any]) -> None:
        state = {**rank_state, "world_size": self._ranks.world_size}
        write_new(staged / _rank_file(self._ranks.rank), json.dumps(state).encode())
        if self._ranks.rank == 0:
            for name, obj in self._objects.items():
                save_object(name, obj, staged)

    def _together(self, work: Callable[[], None]) -> None:
        """Do ``work`` on every rank.

        Raises:
            CheckpointError: the disk refused on any of them; raised on all.
        """
        refused: OSError | None = None
        try:
            work()
        except OSError as error:
            refused = error
        if self._ranks.max(int(refused is not None)):
            raise CheckpointError(str(refused or "another rank could not write")) from refused


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def _read_rank_file(folder: Path, rank: int) -> dict[str, Any] | None:
    path = folder / _rank_file(rank)
    if not path.exists():
        return None
    try:
        state = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return state


def _is_whole(path: Path) -> bool:
    try:
        verify(path)
    except CheckpointError as error:
        warn(f"cannot begin from {path}: {error}")
        return False
    return True
