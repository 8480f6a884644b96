"""Convert the state of an optimizer to parameter names, and load named states.

torch numbers the parameters of an optimizer. A sharded checkpoint has names instead, so that it can
be read with another number of ranks or another sharding: ``model.h.0.weight`` is ``h.0.weight`` of
the object ``model``. A parameter that is in none of the objects is named by its position in the
optimizer, ``0.3``: number 3 of parameter group 0.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.shards import Stored, StoredTensor
from hpcflow.runtime.tensor_tree import join, spell, split

_SOME = 3


def unwrapped(obj: Any) -> Any:
    """Return ``obj`` without wrappers of DistributedDataParallel and torch.compile.

    With them, their prefixes would be in every key of the checkpoint.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.nn.parallel.DistributedDataParallel):
        return unwrapped(obj.module)
    if hasattr(obj, "_orig_mod"):
        return unwrapped(obj._orig_mod)
    return obj


def is_optimizer(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.optim.Optimizer)


def parameter_names(objects: Mapping[str, Any]) -> dict[int, str]:
    """Return ``id`` -> name of every parameter of the modules in ``objects``."""
    import torch

    names: dict[int, str] = {}
    for name, obj in objects.items():
        if isinstance(unwrapped(obj), torch.nn.Module):
            for key, value in unwrapped(obj).state_dict(keep_vars=True).items():
                if isinstance(value, torch.nn.Parameter):
                    names.setdefault(id(value), f"{name}.{key}")
    return names


def with_names(obj: Any, state: Any, names: Mapping[int, str]) -> Any:
    """Return ``state`` of ``obj``, for an optimizer with parameter names instead of numbers.

    Raises:
        CheckpointError: the state is of an optimizer with other parameters.
    """
    if not is_optimizer(obj):
        return state
    called = [name for group in _called(obj, names) for name in group]

    def name(key: Any) -> Any:
        return called[key] if type(key) is int else key  # some optimizers already use names

    try:
        return {
            **state,
            "state": {name(key): value for key, value in state["state"].items()},
            "param_groups": [
                {**group, "params": [name(key) for key in group["params"]]}
                for group in state["param_groups"]
            ],
        }
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"it is the state of another optimizer: {error!r}") from error


def check_optimizer(
    name: str, obj: Any, names: Mapping[int, str], tensors: Collection[Any]
) -> None:
    """Check that the state of an optimizer can be loaded before its first train step.

    Args:
        tensors: the (place, tensor) pairs of the state.

    Raises:
        TypeError: a sharded tensor has another shape than its parameter.
    """
    parameters = _parameters(obj, _called(obj, names))
    for place, tensor in tensors:
        parameter = parameters.get(place[1]) if place[0] == "state" else None
        if hasattr(tensor, "placements") and tensor.shape != getattr(parameter, "shape", None):
            raise TypeError(
                f"{name}: {spell(place)} is sharded, and has another shape than its parameter: "
                f"{type(obj).__name__} cannot be resumed when its parameters are sharded"
            )


def load_named(name: str, obj: Any, names: Mapping[int, str], stored: Stored) -> None:
    """Load the state in ``stored`` into the object ``obj`` called ``name``.

    An optimizer need not have done a train step.

    Raises:
        CheckpointError: the stored state does not match the object.
    """
    if is_optimizer(obj):
        _load_named_optimizer(name, obj, _called(obj, names), stored)
        return
    state = unwrapped(obj).state_dict()
    targets, _ = split(state)
    _compare(name, map(spell, targets), map(spell, stored.tensors))
    stored.fill(targets)
    # Into torch's own dict, which has the versions of its modules.
    state.update(join(stored.values, targets))
    unwrapped(obj).load_state_dict(state)


def load_optimizer(optimizer: Any, state: Any) -> None:
    """Load ``state``, whose tensors are mapped from a file, into ``optimizer``.

    Tensors of parameters on a GPU go there from the disk, without a copy in host memory.
    """
    optimizer.load_state_dict(state)
    for parameter, loaded in optimizer.state.items():
        tensors, values = split(loaded)
        # Tensors on the CPU are still mapped from the file, which may be removed later.
        own = {at: each.clone() if each.is_cpu else each for at, each in tensors.items()}
        optimizer.state[parameter] = join(values, own)


def _load_named_optimizer(name: str, obj: Any, called: list[list[str]], stored: Stored) -> None:
    parameters = _parameters(obj, called)
    targets = {
        place: _empty(tensor, parameters.get(place[1]) if place[0] == "state" else None)
        for place, tensor in stored.tensors.items()
    }
    stored.fill(targets)
    state = join(stored.values, targets)
    groups = state["param_groups"]
    _compare(f"{name}, parameter groups", range(len(called)), range(len(groups)))
    numbered, number = {}, 0
    for group, names in zip(groups, called):  # noqa: B905 - strict= came with 3.10
        _compare(name, names, group["params"])
        # torch matches the parameters of a group by their order: that of this optimizer.
        group["params"] = list(range(number, number + len(names)))
        numbered.update({called: number + i for i, called in enumerate(names)})
        number += len(names)
    state["state"] = {numbered.get(key, key): value for key, value in state["state"].items()}
    obj.load_state_dict(state)


def _called(optimizer: Any, names: Mapping[int, str]) -> list[list[str]]:
    """Return the names of the parameters in each group."""
    return [
        [names.get(id(each), f"{number}.{i}") for i, each in enumerate(group["params"])]
        for number, group in enumerate(optimizer.param_groups)
    ]


def _parameters(optimizer: Any, called: list[list[str]]) -> dict[Any, Any]:
    parameters: dict[Any, Any] = {}
    for group, names in zip(optimizer.param_groups, called):  # noqa: B905 - strict= came with 3.10
        parameters.update(zip(names, group["params"]))  # noqa: B905
    return parameters


def _empty(tensor: StoredTensor, parameter: Any) -> Any:
    """Allocate a tensor of an optimizer; sharded like its parameter if it has the same shape."""
    import torch

    is_sharded = parameter is not None and hasattr(parameter, "device_mesh")
    if is_sharded and tuple(parameter.shape) == tensor.shape:
        return torch.empty_like(parameter.detach(), dtype=tensor.dtype)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _compare(name: str, here: Iterable[Any], there: Iterable[Any]) -> None:
    ours, theirs = set(here), set(there)
    if ours - theirs:
        raise CheckpointError(f"{name}: not in the checkpoint: {_some(ours - theirs)}")
    if theirs - ours:
        raise CheckpointError(f"{name}: only in the checkpoint: {_some(theirs - ours)}")


def _some(names: Collection[Any]) -> str:
    shown = sorted(map(str, names))[:_SOME]
    return ", ".join(shown) + (f" and {len(names) - _SOME} more" if len(names) > _SOME else "")
