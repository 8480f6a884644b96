"""Capture and load the objects given to ``run.restore``, on all ranks together.

Rank 0 writes the objects that every rank has in full. Each rank writes its part of sharded objects,
and its own data loaders, data sets and samplers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import PickleError
from typing import Any

from hpcflow.runtime.host_copy import HostCopies
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.named_state import (
    check_optimizer,
    is_optimizer,
    load_named,
    load_optimizer,
    parameter_names,
    unwrapped,
    with_names,
)
from hpcflow.runtime.objects import (
    JsonPart,
    Part,
    TorchPart,
    check_object,
    file_name,
    has_state,
    is_of_data,
    is_of_weights,
    is_sharded,
    outline,
    read_json,
    read_weights,
    save_folder,
)
from hpcflow.runtime.plain import pickled, require_plain
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.shards import (
    IndexPart,
    ShardPlanner,
    ShardsPart,
    Stored,
    read_index,
    shard_file,
    whole,
)
from hpcflow.runtime.tensor_tree import Place, split
from hpcflow.runtime.warn import warn


class ProgramState:
    """The objects of a program, by their names. All ranks create it together.

    Raises:
        TypeError: an object cannot be saved, or the ranks have different objects.
    """

    def __init__(self, objects: dict[str, Any], ranks: Ranks) -> None:
        # First, because the ranks have one exchange for each object that follows.
        if not _is_same(ranks, json.dumps(list(objects))):
            raise TypeError(
                "run.restore(): all ranks must name the same objects in the same order; rank "
                f"{ranks.rank} names {', '.join(objects) or 'none'}"
            )
        for name, obj in objects.items():
            check_object(name, obj)
            if ranks.world_size > 1 and not _is_same(ranks, outline(obj)):
                raise TypeError(
                    f"{name} is not the same on all ranks, as in pipeline parallel trainings; "
                    "this cannot be saved"
                )
        self._objects = dict(objects)
        self._ranks = ranks
        self._planner = ShardPlanner(ranks)
        self._proven: set[type] = set()  # types of tensors that can be loaded again
        self._captured: set[str] = set()  # names of objects that were saved before
        self._sharded = {
            name: obj for name, obj in objects.items() if ranks.max(int(is_sharded(obj)))
        }

    def path(self, name: str, checkpoint: Path) -> Path:
        """Return the path of an object in a checkpoint; the checkpoint, if it has many files."""
        obj = self._objects.get(name)
        if obj is None or name in self._sharded:
            return checkpoint
        return checkpoint / file_name(name, obj, self._ranks.rank)

    def capture(self, folder: Path, copies: HostCopies | None) -> list[Part]:
        """Capture this rank's part of the state, to be written into ``folder``.

        Args:
            copies: copies tensors, so that the objects may change while they are written; None if
                they will not change. The copies are complete after ``copies.wait()``.

        Raises:
            OSError: the disk is full or gone, there is not enough host memory, or an object that
                was saved before now holds a value that could not be loaded again.
            TypeError: an object was sharded after ``run.restore``, or holds, at the first save, a
                value that could not be loaded again.
        """
        parts = self._capture_shards(copies) if self._sharded else []
        for name, obj in self._objects.items():
            if name not in self._sharded and (self._ranks.rank == 0 or is_of_data(obj)):
                with self._as_before(name):
                    parts.append(self._capture_whole(name, obj, folder, copies))
        return parts

    @contextmanager
    def _as_before(self, name: str) -> Iterator[None]:
        """Raise OSError, which does not end the training, if the object was saved before."""
        try:
            yield
        except (AttributeError, RecursionError, TypeError, ValueError, PickleError) as error:
            if name not in self._captured:
                raise
            raise OSError(f"{name}: {error}") from error
        self._captured.add(name)

    def load(self, folder: Path, *, is_same_size: bool) -> list[Any]:
        """Load the state of all objects from the verified checkpoint in ``folder``.

        Args:
            is_same_size: whether it was saved by the same number of ranks; otherwise data loaders,
                data sets and samplers keep their state.

        Returns:
            The data loaders, data sets and samplers that were loaded.

        Raises:
            CheckpointError: the checkpoint lacks an object, or holds something else.
        """
        return self._load(self._objects, folder, is_same_size=is_same_size)

    def load_weights(self, folder: Path) -> None:
        """Load only weights: modules, and objects with ``load(folder)``.

        Raises:
            CheckpointError: the checkpoint has none of them, or holds something else.
        """
        wanted = {name: obj for name, obj in self._objects.items() if is_of_weights(obj)}
        found = {name: obj for name, obj in wanted.items() if self._has(name, obj, folder)}
        if not found:
            there = ", ".join(sorted(entry.name for entry in folder.iterdir()))
            raise CheckpointError(
                f"checkpoint {folder}, which the run starts from, has no weights of "
                f"{', '.join(wanted) or 'any module given to run.restore()'}; it has {there}"
            )
        for name in wanted.keys() - found.keys() if self._ranks.rank == 0 else ():
            warn(f"{name} is not in the checkpoint that the run starts from, and is not loaded")
        self._load(found, folder, is_same_size=False)

    def _load(self, objects: Mapping[str, Any], folder: Path, *, is_same_size: bool) -> list[Any]:
        index = read_index(folder)
        names = parameter_names(self._objects) if index or self._sharded else {}
        placed = []
        for name, obj in objects.items():
            if is_of_data(obj):
                if is_same_size:
                    obj.load_state_dict(read_weights(self._find(name, obj, folder)))
                    placed.append(obj)
                continue
            values = folder / _values_file(name)
            if has_state(obj) and values.exists():
                tensors = {place[1:]: tensor for place, tensor in index.items() if place[0] == name}
                load_named(name, obj, names, Stored(tensors, read_weights(values)))
            elif name in self._sharded:
                state = read_weights(self._find(name, obj, folder), is_mapped=True)
                load_named(name, obj, names, whole(with_names(obj, state, names)))
            else:
                self._load_whole(obj, self._find(name, obj, folder))
        return placed

    def _capture_shards(self, copies: HostCopies | None) -> list[Part]:
        names = parameter_names(self._objects)
        tensors: dict[Place, Any] = {}
        values = {}
        for name, obj in self._sharded.items():
            own, values[name] = split(with_names(obj, unwrapped(obj).state_dict(), names))
            if is_optimizer(obj):
                check_optimizer(name, obj, names, own.items())
            tensors.update({(name, *place): tensor for place, tensor in own.items()})
        # Before any step that can fail on one rank only, because all ranks take part in it.
        share = self._planner.share(tensors)
        mine = {place: _local(tensors[place]) for place, _ in share.begins}
        rank = self._ranks.rank
        parts: list[Part] = [
            ShardsPart(shard_file(rank), copies.take(mine) if copies else lambda: mine, share)
        ]
        if rank == 0:
            parts.append(IndexPart(share))
            for name, each in values.items():
                with self._as_before(name):
                    parts.append(self._torch_part(name, _values_file(name), each, copies))
        return parts

    def _capture_whole(self, name: str, obj: Any, folder: Path, copies: HostCopies | None) -> Part:
        file = file_name(name, obj, self._ranks.rank)
        if isinstance(obj, dict):
            return JsonPart(file, json.dumps(obj))
        if not has_state(obj):
            return save_folder(name, obj, folder)
        if is_sharded(obj):  # not when restore() checked it
            raise TypeError(f"{name} was sharded after run.restore(): rank 0 has only a part of it")
        return self._torch_part(name, file, unwrapped(obj).state_dict(), copies)

    def _torch_part(self, name: str, file: str, state: Any, copies: HostCopies | None) -> TorchPart:
        if name not in self._captured:  # later saves check it when it is written
            require_plain(file, state, self._proven)
        copy = copies.take(state) if copies else pickled(state, lambda tensor: tensor)
        return TorchPart(file, copy, self._proven)

    def _load_whole(self, obj: Any, path: Path) -> None:
        if isinstance(obj, dict):
            obj.clear()
            obj.update(read_json(path))
        elif is_optimizer(obj):
            load_optimizer(obj, read_weights(path, is_mapped=True))
        elif has_state(obj):
            unwrapped(obj).load_state_dict(read_weights(path))
        else:
            obj.load(path)

    def _has(self, name: str, obj: Any, folder: Path) -> bool:
        return (folder / _values_file(name)).exists() or (folder / file_name(name, obj)).exists()

    def _find(self, name: str, obj: Any, folder: Path) -> Path:
        path = folder / file_name(name, obj, self._ranks.rank)
        if not path.exists():
            there = ", ".join(sorted(entry.name for entry in folder.iterdir()))
            raise CheckpointError(f"checkpoint {folder} has no {path.name}; it has {there}")
        return path


def _is_same(ranks: Ranks, text: str) -> bool:
    """Return whether ``text`` is the same on all ranks; all call it together."""
    most = (1 << 31) - 1  # all frameworks can exchange integers up to this
    digest = zlib.crc32(text.encode()) & most
    return ranks.max(digest) == most - ranks.max(most - digest)


def _values_file(name: str) -> str:
    return f"{name}.values.pt"


def _local(tensor: Any) -> Any:
    """Return this rank's part of a tensor, as a plain tensor without a graph."""
    import torch

    with torch.no_grad():  # else to_local() of a sharded tensor calls autograd
        return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()
