"""The program's objects in a checkpoint: how each kind is written and read back.

=========================================  =========================================
kind                                       in the checkpoint
=========================================  =========================================
``state_dict()`` and ``load_state_dict()``  ``NAME.pt``, by torch.save
a dict of JSON values                      ``NAME.json``
``save(folder)`` and ``load(folder)``      the folder ``NAME/``
=========================================  =========================================

An object is captured first, which holds the training up, and written then, which does not. One that
saves itself is saved while it is captured, for nobody else knows its state.

Reading never runs code that a file brings along: torch loads weights only.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hpcflow.runtime.files import NewFile, Written, files_below, sha256_of, sync
from hpcflow.runtime.host_copy import HostCopies
from hpcflow.runtime.manifest import CheckpointError

#: Names of torch's classes; importing them would cost a second and a process group.
_SHARDED = frozenset({"FullyShardedDataParallel", "FlatParameter", "DTensor", "ShardedTensor"})


def check_object(name: str, obj: object) -> None:
    """Make sure that ``obj`` can be saved and restored under ``name``.

    Raises:
        TypeError: it cannot; the text says what could.
    """
    if name == "manifest" and isinstance(obj, dict):
        raise TypeError("a dict cannot be called manifest: manifest.json is taken")
    if isinstance(obj, dict):
        if json.loads(json.dumps(obj)) != obj:
            raise TypeError(f"{name}: JSON changes this dict; use text as keys and no tuples")
    elif not _has(obj, "state_dict", "load_state_dict") and not _has(obj, "save", "load"):
        raise TypeError(
            f"{name}: {type(obj).__name__} has neither state_dict() and load_state_dict(), "
            "nor save(folder) and load(folder), and is no dict"
        )
    elif _is_sharded(obj):
        raise TypeError(
            f"{name}: {type(obj).__name__} is sharded over the ranks (FSDP, tensor parallel), "
            "and a checkpoint holds what rank 0 has; use DistributedDataParallel"
        )


def file_name(name: str, obj: object) -> str:
    """What ``obj`` is called inside a checkpoint."""
    if isinstance(obj, dict):
        return f"{name}.json"
    return f"{name}.pt" if _has(obj, "state_dict", "load_state_dict") else name


class Part(Protocol):
    """One object of a checkpoint, as it was when it was captured."""

    def write(self, folder: Path, must_stop: Callable[[], bool]) -> dict[str, Written]:
        """Write it into ``folder``; returns its files, on disk, by their names below ``folder``.

        Args:
            must_stop: asked now and then; once it is true, nothing more is written.

        Raises:
            OSError: the disk is full or gone, or it had to stop.
        """
        ...


@dataclass(frozen=True)
class JsonPart:
    """A dict, or anything else that JSON has."""

    name: str
    text: str

    def write(self, folder: Path, must_stop: Callable[[], bool]) -> dict[str, Written]:
        file = NewFile(folder / self.name, must_stop)
        file.write(self.text.encode())
        return {self.name: file.close()}


@dataclass(frozen=True)
class TorchPart:
    """A state dict; ``state`` gives it."""

    name: str
    state: Callable[[], Any]

    def write(self, folder: Path, must_stop: Callable[[], bool]) -> dict[str, Written]:
        import torch

        file = NewFile(folder / self.name, must_stop)
        try:
            torch.save(self.state(), file)
        finally:
            written = file.close()
        return {self.name: written}


@dataclass(frozen=True)
class FolderPart:
    """A folder that the object itself has filled already, nobody but itself knowing how."""

    name: str

    def write(self, folder: Path, must_stop: Callable[[], bool]) -> dict[str, Written]:  # noqa: ARG002
        files = {}
        for name, path in files_below(folder / self.name):
            sync(path)
            files[f"{self.name}/{name}"] = Written(path.stat().st_size, sha256_of(path))
        return files


def capture_object(name: str, obj: Any, folder: Path, copies: HostCopies | None) -> Part:
    """``obj`` as it is now, to be written into the checkpoint that is being made in ``folder``.

    Args:
        copies: what copies tensors, so that the object may change while it is written; None when
            it will not change. They are whole once these were settled.

    Raises:
        OSError: the disk is full or gone, or there is not enough host memory.
        TypeError: it is sharded over the ranks.
    """
    path = folder / file_name(name, obj)
    if isinstance(obj, dict):
        return JsonPart(path.name, json.dumps(obj))
    if path.suffix == ".pt":
        if _is_sharded(obj):  # since restore() looked at it
            raise TypeError(f"{name} was sharded after run.restore(): rank 0 has a part of it only")
        state = _bare(obj).state_dict()
        return TorchPart(path.name, copies.take(state) if copies else lambda: state)
    path.mkdir()
    obj.save(path)
    return FolderPart(path.name)


def load_object(name: str, obj: Any, folder: Path) -> None:
    """Read ``obj`` back from the checkpoint in ``folder``, which was verified.

    Raises:
        CheckpointError: the checkpoint does not hold it, or holds something else.
    """
    path = folder / file_name(name, obj)
    if not path.exists():
        there = ", ".join(sorted(entry.name for entry in folder.iterdir()))
        raise CheckpointError(f"checkpoint {folder} has no {path.name}; it has {there}")
    if isinstance(obj, dict):
        obj.clear()
        obj.update(json.loads(path.read_bytes()))
    elif path.suffix == ".pt":
        _bare(obj).load_state_dict(_read_weights(path))
    else:
        obj.load(path)


def _read_weights(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds more than tensors and plain values, which hpcflow does not load: {error}"
        ) from error


def _bare(obj: Any) -> Any:
    """``obj`` without DistributedDataParallel and torch.compile around it.

    Their names would stand in every key, and the checkpoint could only be loaded with them.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.nn.parallel.DistributedDataParallel):
        return _bare(obj.module)
    if hasattr(obj, "_orig_mod"):
        return _bare(obj._orig_mod)
    return obj


def _is_sharded(obj: Any) -> bool:
    """Whether a module or an optimizer has but a part of its tensors in this process.

    ``state_dict()`` is not asked: that of FSDP is a collective call.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(obj, torch.nn.Module):
        tensors = [*obj.parameters(), *obj.buffers()]
        kinds = {type(module).__name__ for module in obj.modules()}
    else:
        groups = getattr(obj, "param_groups", None)
        groups = groups if isinstance(groups, list) else []
        tensors = [tensor for group in groups for tensor in group.get("params", ())]
        kinds = set()
    kinds.update(type(tensor).__name__ for tensor in tensors)
    return not kinds.isdisjoint(_SHARDED)


def _has(obj: object, *methods: str) -> bool:
    return all(callable(getattr(obj, method, None)) for method in methods)
