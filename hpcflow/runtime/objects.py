"""The program's objects in a checkpoint: how each kind is written and read back.

=========================================  ======================================================
kind                                       in the checkpoint
=========================================  ======================================================
``state_dict()`` and ``load_state_dict()``  ``NAME.pt``, by torch.save
the same, of a data loader                 ``NAME.rank-00000.pt`` of every rank
the same, sharded over the ranks           tensors in ``rank-00000.shards`` of every rank, what is
                                           no tensor in ``NAME.values.pt``: see shard_files.py
a dict of JSON values                      ``NAME.json``
``save(folder)`` and ``load(folder)``      the folder ``NAME/``
=========================================  ======================================================

An object is captured first, which holds the training up, and written then, which does not. One that
saves itself is saved while it is captured, for nobody else knows its state.

Reading never runs code that a file brings along: torch loads weights only.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hpcflow.runtime.background import describe
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import NewFile, Written, files_below, sync
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.plain import require_plain
from hpcflow.runtime.reading import JsonError, UnsafeFileError, open_file, parse_json
from hpcflow.runtime.tensor_tree import split

#: What a zip archive begins with, such as torch.save writes.
ZIP = b"PK\x03\x04"

#: Names of torch's older classes for sharding, whose state_dict() is a collective call.
_UNKNOWN_SHARDS = frozenset(
    {"FullyShardedDataParallel", "FlatParameter", "ShardedTensor", "ZeroRedundancyOptimizer"}
)


def check_object(name: str, obj: object) -> None:
    """Make sure that ``obj`` can be saved and restored under ``name``.

    Raises:
        TypeError: it cannot; the text says what could.
    """
    if name in ("manifest", "shards") and isinstance(obj, dict):
        raise TypeError(f"a dict cannot be called {name}: {name}.json is taken")
    if isinstance(obj, dict):
        if json.loads(json.dumps(obj)) != obj:
            raise TypeError(f"{name}: JSON changes this dict; use text as keys and no tuples")
    elif not has_state(obj) and not _has(obj, "save", "load"):
        raise TypeError(
            f"{name}: {type(obj).__name__} has neither state_dict() and load_state_dict(), "
            "nor save(folder) and load(folder), and is no dict"
        )
    elif not _UNKNOWN_SHARDS.isdisjoint(_kinds(obj)):
        raise TypeError(
            f"{name}: {type(obj).__name__} is sharded in an older way of torch, which cannot be "
            "saved; use fully_shard of torch.distributed.fsdp"
        )


def has_state(obj: object) -> bool:
    """Whether torch.save takes its state, and torch.load gives it back."""
    return not isinstance(obj, dict) and _has(obj, "state_dict", "load_state_dict")


def is_of_data(obj: object) -> bool:
    """Whether ``obj`` gives out data, of which every rank has its own part and place."""
    torch = sys.modules.get("torch")
    if torch is None or not has_state(obj):
        return False
    data = torch.utils.data
    return isinstance(obj, (data.DataLoader, data.Dataset, data.Sampler)) or any(
        kind.__module__.split(".")[0] == "torchdata" for kind in type(obj).__mro__
    )


def is_of_weights(obj: object) -> bool:
    """Whether ``obj`` is what another training can start from: a module, also inside of others, or
    an object that loads itself. An optimizer or a scheduler belongs to one training."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.nn.Module):
        return True
    return not isinstance(obj, dict) and not has_state(obj)


def is_sharded(obj: object) -> bool:
    """Whether of some tensors of ``obj`` this process has a part only, or may have."""
    return "DTensor" in _kinds(obj)


def outline(obj: object) -> str:
    """Names and shapes of all that a module has; nothing of other objects."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.Module):
        return ""
    tensors = [*obj.named_parameters(), *obj.named_buffers()]
    return json.dumps([(name, list(tensor.shape)) for name, tensor in tensors])


def file_name(name: str, obj: object, rank: int = 0) -> str:
    """What ``obj`` is called inside a checkpoint, where it is not sharded."""
    if isinstance(obj, dict):
        return f"{name}.json"
    if not has_state(obj):
        return name
    return f"{name}.rank-{rank:05d}.pt" if is_of_data(obj) else f"{name}.pt"


class Create(Protocol):
    """Makes a new file at a path."""

    def __call__(self, path: Path) -> NewFile: ...


class Part(Protocol):
    """One object of a checkpoint, as it was when it was captured."""

    def write(self, folder: Path, create: Create, /) -> dict[str, Written]:
        """Write it into ``folder``; returns its files, on disk, by their names below ``folder``.

        Args:
            create: makes a new file at a path.

        Raises:
            OSError: the disk is full or gone, or it had to stop.
        """
        ...


@dataclass(frozen=True)
class JsonPart:
    """A dict, or anything else that JSON has."""

    name: str
    text: str

    def write(self, folder: Path, create: Create) -> dict[str, Written]:
        file = create(folder / self.name)
        file.write(self.text.encode())
        return {self.name: file.close()}


@dataclass(frozen=True)
class TorchPart:
    """A state dict; ``state`` gives it. ``proven``: see :func:`require_plain`."""

    name: str
    state: Callable[[], Any]
    proven: set[type]

    def write(self, folder: Path, create: Create) -> dict[str, Written]:
        import torch

        state = self.state()
        try:
            require_plain(self.name, state, self.proven)
        except (AttributeError, TypeError, pickle.PickleError) as error:
            raise OSError(str(error)) from error
        file = create(folder / self.name)
        try:
            with _without_crc32(torch.serialization):
                torch.save(state, file)
        finally:
            written = file.close()
        return {self.name: written}


@dataclass(frozen=True)
class FolderPart:
    """A folder that the object itself has filled already, nobody but itself knowing how."""

    name: str

    def write(self, folder: Path, _create: Create, /) -> dict[str, Written]:
        files = {}
        for name, path in files_below(folder / self.name):
            sync(path)
            files[f"{self.name}/{name}"] = Written(path.stat().st_size, sha256_of(path))
        return files


def save_folder(name: str, obj: Any, folder: Path) -> FolderPart:
    """Let ``obj`` save itself into the checkpoint that is being made in ``folder``.

    Raises:
        OSError: it could not. The disk is full or gone, for which every library has another error.
    """
    (folder / name).mkdir()
    try:
        obj.save(folder / name)
    except Exception as error:
        raise OSError(f"{name}.save(): {describe(error)}") from error
    return FolderPart(name)


def read_json(path: Path) -> Any:
    """What the file says.

    Raises:
        CheckpointError: it is not JSON, or nothing that we wrote.
    """
    try:
        with open_file(path) as file:  # no limit: its size was compared with its manifest
            return parse_json(file.read())
    except (JsonError, UnsafeFileError) as error:
        raise CheckpointError(f"{path}: {getattr(error, 'strerror', error)}") from error


def read_weights(path: Path, *, is_mapped: bool = False) -> Any:
    """The state that torch.save wrote.

    Args:
        is_mapped: read tensors from the disk only where they are used, for who copies parts.

    Raises:
        CheckpointError: it holds anything that would have to be executed.
    """
    import torch

    with open_file(path) as file:
        if file.read(len(ZIP)) != ZIP:
            # torch before 2.6 executes what a file in the format of its first versions says, also
            # with weights_only (CVE-2025-32434). hpcflow never wrote that format.
            raise CheckpointError(
                f"{path} holds more than tensors and plain values, which hpcflow does not load: it "
                "is not a zip archive"
            )
    try:
        return torch.load(str(path), map_location="cpu", weights_only=True, mmap=is_mapped)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} holds more than tensors and plain values, which hpcflow does not load: {error}"
        ) from error


def _kinds(obj: object) -> set[str]:
    """The names of the types that ``obj`` consists of, as far as sharding shows in them.

    Modules are not asked for their state, which may be a collective call. Of classes names are
    enough: importing them would cost a second and a process group.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return set()
    kinds: set[str] = set()
    groups = getattr(obj, "param_groups", None)
    if isinstance(obj, torch.nn.Module):
        tensors = [*obj.parameters(), *obj.buffers()]
        kinds = {type(module).__name__ for module in obj.modules()}
    elif isinstance(groups, list):
        tensors = [tensor for group in groups for tensor in group.get("params", ())]
    elif has_state(obj) and not is_of_data(obj):
        tensors = list(split(obj.state_dict())[0].values())  # type: ignore[attr-defined]
    else:
        tensors = []
    return kinds | {type(obj).__name__} | {type(tensor).__name__ for tensor in tensors}


@contextmanager
def _without_crc32(serialization: Any) -> Iterator[None]:
    """Let torch.save compute no checksums: they take as long as those of the manifest.

    torch.load does not look at them. What the program itself saves at this moment may have none
    either: torch has one setting for all threads, and only since 2.6.
    """
    if not hasattr(serialization, "set_crc32_options"):
        yield
        return
    before = serialization.get_crc32_options()
    serialization.set_crc32_options(False)
    try:
        yield
    finally:
        if not serialization.get_crc32_options():  # else the program has set it meanwhile
            serialization.set_crc32_options(before)


def _has(obj: object, *methods: str) -> bool:
    return all(callable(getattr(obj, method, None)) for method in methods)
