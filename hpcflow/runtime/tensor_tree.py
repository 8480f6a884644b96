"""Split a nested state into its tensors, by their places, and its other values.

::

    {"state": {"wte": {"exp_avg": T, "rule": "x"}}, "lr": 0.1}

    tensors   ("state", "wte", "exp_avg"): T
    values    {"state": {"wte": {"exp_avg": None, "rule": "x"}}, "lr": 0.1}

The ranks that have the tensors write them as bytes. The values are few and small, and the same on
all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    #: Keys and indices from the outermost container inwards.
    Place = tuple[Any, ...]
else:
    Place = tuple


def split(state: Any) -> tuple[dict[Place, Any], Any]:
    """Return the tensors in ``state``, in its order, and ``state`` with None in their places."""
    import torch

    tensors: dict[Place, Any] = {}

    def walk(value: Any, place: Place) -> Any:
        if isinstance(value, torch.Tensor):
            tensors[place] = value
            return None
        if isinstance(value, dict):
            return {key: walk(item, (*place, key)) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(walk(item, (*place, i)) for i, item in enumerate(value))
        return value

    return tensors, walk(state, ())


def join(values: Any, tensors: Mapping[Place, Any]) -> Any:
    """Invert :func:`split`; dicts of other types come back as plain ones."""

    def walk(value: Any, place: Place) -> Any:
        if place in tensors:
            return tensors[place]
        if isinstance(value, dict):
            return {key: walk(item, (*place, key)) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(walk(item, (*place, i)) for i, item in enumerate(value))
        return value

    return walk(values, ())


def spell(place: Place) -> str:
    """Return a place as text for people."""
    return ".".join(map(str, place))
