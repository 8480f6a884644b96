"""The program's objects in a checkpoint: how each kind is written and read back.

=========================================  =========================================
kind                                       in the checkpoint
=========================================  =========================================
``state_dict()`` and ``load_state_dict()``  ``NAME.pt``, by torch.save
a dict of JSON values                      ``NAME.json``
``save(folder)`` and ``load(folder)``      the folder ``NAME/``
=========================================  =========================================

Reading never runs code that a file brings along: torch loads weights only.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from hpcflow.runtime.files import write_new
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


def save_object(name: str, obj: Any, folder: Path) -> None:
    """Write ``obj`` into the checkpoint that is being made in ``folder``.

    Raises:
        OSError: the disk is full or gone.
    """
    path = folder / file_name(name, obj)
    if isinstance(obj, dict):
        write_new(path, json.dumps(obj).encode())
    elif path.suffix == ".pt":
        import torch

        if _is_sharded(obj):  # since restore() looked at it
            raise TypeError(f"{name} was sharded after run.restore(): rank 0 has a part of it only")
        with path.open("xb") as file:
            try:
                torch.save(_bare(obj).state_dict(), file)
            except RuntimeError as error:
                # torch reports a full disk as an assertion about its own writer.
                raise OSError(f"{path.name} could not be written: {error}") from error
    else:
        path.mkdir()
        obj.save(path)


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
