"""Capture and restore the random number generators of this process, as JSON values.

These are Python's, NumPy's global one and torch's (CPU, and the current GPU). The program itself
must save generators that it has created.
"""

from __future__ import annotations

import random
import sys
from typing import Any


def capture_rng() -> dict[str, Any]:
    """Return the state of every generator whose library is imported."""
    state: dict[str, Any] = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        legacy = numpy.random.get_state(legacy=False)
        legacy["state"] = {"key": legacy["state"]["key"].tolist(), "pos": legacy["state"]["pos"]}
        state["numpy"] = legacy
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().tolist()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state().tolist()
    return state


def restore_rng(state: dict[str, Any]) -> None:
    """Restore the state from :func:`capture_rng`.

    Raises:
        ValueError, TypeError, KeyError, RuntimeError: the state is invalid.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(_bytes(state["torch"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(_bytes(state["cuda"]))


def capture_generator(loader: Any) -> list[int] | None:
    """Return the state of a torch DataLoader's own generator; None if it has none."""
    generator = getattr(loader, "generator", None)
    return None if generator is None else list(generator.get_state().tolist())


def restore_generator(loader: Any, state: list[int] | None) -> None:
    """Restore the state from :func:`capture_generator`."""
    generator = getattr(loader, "generator", None)
    if generator is not None and state is not None:
        generator.set_state(_bytes(state))


def _bytes(values: list[int]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.uint8, device="cpu")
