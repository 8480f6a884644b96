"""Write the program's objects into a checkpoint, and read them back.

=========================================  ======================================================
kind                                       in the checkpoint
=========================================  ======================================================
``state_dict()`` and ``load_state_dict()``  ``NAME.pt``, by torch.save
the same, of a data loader                 ``NAME.rank-00000.pt`` of every rank
the same, sharded over the ranks           tensors in ``rank-00000.shards`` of every rank, the
                                           rest in ``NAME.values.pt``: see shards.py
a dict of JSON values                      ``NAME.json``
``save(folder)`` and ``load(folder)``      the folder ``NAME/``
=========================================  ======================================================

An object is first captured, while the train loop waits, and then written, while it continues. An
object with ``save(folder)`` is saved while it is captured.

Reading never executes code from a file: torch loads only weights.
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

#: The first bytes of a zip archive, which torch.save writes.
ZIP = b"PK\x03\x04"

#: Names of torch's older classes for sharding, whose state_dict() is a collective call.
_UNKNOWN_SHARDS = frozenset(
    {"FullyShardedDataParallel", "FlatParameter", "ShardedTensor", "ZeroRedundancyOptimizer"}
)


def check_object(name: str, obj: object) -> None:
    """Check that ``obj`` can be saved and restored under ``name``.

    Raises:
        TypeError: it cannot; the text says what to change.
    """
    if name in ("manifest", "shards") and isinstance(obj, dict):
        raise TypeError(f"a dict cannot be called {name}: {name}.json is taken")
    if isinstance(obj, dict):
        if json.loads(json.dumps(obj)) != obj:
            raise TypeError(f"{name}: JSON changes this dict; use text as keys and no tuples")
    elif not has_state(obj) and not _has(obj, "save", "load"):
        raise TypeError(
            f"{name}: {type(obj).__name__} has neither state_dict() and load_state_dict(), "
            "nor save(folder) and load(folder), and is not a dict"
        )
    elif not _UNKNOWN_SHARDS.isdisjoint(_kinds(obj)):
        raise TypeError(
            f"{name}: {type(obj).__name__} uses an older sharding API of torch, which cannot be "
            "saved; use fully_shard of torch.distributed.fsdp"
        )


def has_state(obj: object) -> bool:
    """Return whether ``obj`` has ``state_dict`` and ``load_state_dict``."""
    return not isinstance(obj, dict) and _has(obj, "state_dict", "load_state_dict")


def is_of_data(obj: object) -> bool:
    """Return whether ``obj`` is a data loader, data set or sampler: each rank has its own state."""
    torch = sys.modules.get("torch")
    if torch is None or not has_state(obj):
        return False
    data = torch.utils.data
    return isinstance(obj, (data.DataLoader, data.Dataset, data.Sampler)) or any(
        kind.__module__.split(".")[0] == "torchdata" for kind in type(obj).__mro__
    )


def is_of_weights(obj: object) -> bool:
    """Return whether another training can start from ``obj``: a module, or an object with
    ``load(folder)``; not an optimizer or a scheduler."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.nn.Module):
        return True
    return not isinstance(obj, dict) and not has_state(obj)


def is_sharded(obj: object) -> bool:
    return "DTensor" in _kinds(obj)


def outline(obj: object) -> str:
    """Return the names and shapes of a module's tensors as text; empty for other objects."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.Module):
        return ""
    tensors = [*obj.named_parameters(), *obj.named_buffers()]
    return json.dumps([(name, list(tensor.shape)) for name, tensor in tensors])


def file_name(name: str, obj: object, rank: int = 0) -> str:
    """Return the file name of ``obj`` in a checkpoint, if it is not sharded."""
    if isinstance(obj, dict):
        return f"{name}.json"
    if not has_state(obj):
        return name
    return f"{name}.rank-{rank:05d}.pt" if is_of_data(obj) else f"{name}.pt"


class Create(Protocol):
    """A function that creates a file at a path."""

    def __call__(self, path: Path) -> NewFile: ...


class Part(Protocol):
    """One object of a checkpoint, as it was when it was captured."""

    def write(self, folder: Path, create: Create, /) -> dict[str, Written]:
        """Write it into ``folder``; return its files, synced, by their names below ``folder``.

        Raises:
            OSError: the disk is full or gone, or the program has ended.
        """
        ...


@dataclass(frozen=True)
class JsonPart:
    """A value as JSON text."""

    name: str
    text: str

    def write(self, folder: Path, create: Create) -> dict[str, Written]:
        file = create(folder / self.name)
        file.write(self.text.encode())
        return {self.name: file.close()}


@dataclass(frozen=True)
class TorchPart:
    """A state dict, which ``state`` returns. ``proven``: see :func:`require_plain`."""

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
    """A folder that the object has already filled with ``save(folder)``."""

    name: str

    def write(self, folder: Path, _create: Create, /) -> dict[str, Written]:
        files = {}
        for name, path in files_below(folder / self.name):
            sync(path)
            files[f"{self.name}/{name}"] = Written(path.stat().st_size, sha256_of(path))
        return files


def save_folder(name: str, obj: Any, folder: Path) -> FolderPart:
    """Call ``obj.save`` with a new folder in the checkpoint that is being made in ``folder``.

    Raises:
        OSError: any error of ``save``: each library has its own for a full disk.
    """
    (folder / name).mkdir()
    try:
        obj.save(folder / name)
    except Exception as error:
        raise OSError(f"{name}.save(): {describe(error)}") from error
    return FolderPart(name)


def read_json(path: Path) -> Any:
    """Return the value in a JSON file of a checkpoint.

    Raises:
        CheckpointError: the file is not JSON, or unsafe.
    """
    try:
        with open_file(path) as file:  # no limit: its size was compared with its manifest
            return parse_json(file.read())
    except (JsonError, UnsafeFileError) as error:
        raise CheckpointError(f"{path}: {getattr(error, 'strerror', error)}") from error


def read_weights(path: Path, *, is_mapped: bool = False) -> Any:
    """Return the state in a file of torch.save.

    Args:
        is_mapped: map the file, so that only tensors that are used are read.

    Raises:
        CheckpointError: loading the file would execute code.
    """
    import torch

    with open_file(path) as file:
        if file.read(len(ZIP)) != ZIP:
            # torch before 2.6 executes code from a file in torch's first format, even with
            # weights_only (CVE-2025-32434). hpcflow never wrote that format.
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
    """Return the names of the types of ``obj``, its modules and its tensors, to detect sharding.

    ``state_dict()`` of a module is not called, because it may be a collective call. Classes are
    compared by name, because importing them would cost a second and a process group.
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
    """Disable the CRC-32 of torch.save, which takes as long as the checksums of the manifest.

    torch.load does not check it. torch has one setting for all threads, since 2.6, so a file that
    the program saves at this moment may lack it, too.
    """
    if not hasattr(serialization, "set_crc32_options"):
        yield
        return
    before = serialization.get_crc32_options()
    serialization.set_crc32_options(False)
    try:
        yield
    finally:
        if not serialization.get_crc32_options():  # otherwise the program has set it meanwhile
            serialization.set_crc32_options(before)


def _has(obj: object, *methods: str) -> bool:
    return all(callable(getattr(obj, method, None)) for method in methods)
