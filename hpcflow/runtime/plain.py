"""State dicts that torch loads without executing code: only tensors and plain values.

NumPy numbers, which come into optimizers with learning rates, become Python's. torch.save would
write any other value, but no resume could load it. So it is refused here.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any


def pickled(state: Any, tensor: Callable[[Any], Any]) -> Callable[[], Any]:
    """Copy ``state`` as it is now.

    Args:
        tensor: returns the replacement of a tensor; called once for each.

    Returns:
        A function that returns a value of the same structure.

    Raises:
        pickle.PicklingError, TypeError, AttributeError: a value cannot be pickled.
    """
    import torch

    numpy = sys.modules.get("numpy")
    tensors: list[Any] = []
    known: dict[int, tuple[int, Any]] = {}

    class Pickler(pickle.Pickler):
        def persistent_id(_, obj: Any) -> int | None:  # noqa: N805
            if not isinstance(obj, torch.Tensor):
                return None
            if id(obj) not in known:
                known[id(obj)] = (len(tensors), obj)
                tensors.append(tensor(obj))
            return known[id(obj)][0]

        def reducer_override(_, obj: Any) -> Any:  # noqa: N805
            if numpy is None or not isinstance(obj, numpy.generic):
                return NotImplemented
            number = obj.item()
            return NotImplemented if isinstance(number, numpy.generic) else (_same, (number,))

    class Unpickler(pickle.Unpickler):
        def persistent_load(_, index: int) -> Any:  # noqa: N805
            return tensors[index]

    file = io.BytesIO()
    Pickler(file, pickle.HIGHEST_PROTOCOL).dump(state)
    text = file.getvalue()  # only this process reads it
    return lambda: Unpickler(io.BytesIO(text)).load()


def require_plain(file_name: str, state: Any, proven: set[type]) -> None:
    """Check that ``state``, saved as ``file_name``, can be loaded again.

    Args:
        proven: types of tensors that were loaded again before. They are not written here, so that
            a check at every save is cheap. Those of ``state`` are added.

    Raises:
        TypeError: it holds more than tensors and plain values.
        pickle.PicklingError, AttributeError: a value cannot be pickled.
    """
    import torch

    kinds: set[type] = {torch.Tensor, torch.nn.Parameter} | proven
    new: set[type] = set()

    def kept(tensor: Any) -> Any:
        if type(tensor) in kinds:
            return None
        new.add(type(tensor))
        return tensor

    file = io.BytesIO()
    torch.save(pickled(state, kept)(), file)
    file.seek(0)
    try:
        torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise TypeError(
            f"{file_name} could not be loaded again: it may hold tensors, numbers, text, and "
            f"lists, tuples and dicts of them, but has something else: {_reason(str(error))}"
        ) from error
    proven |= new


def _reason(text: str) -> str:
    """Return the sentence of torch's error that names the value, without its advice."""
    return text[max(0, text.find("WeightsUnpickler error:")) :].split("\n")[0]


def _same(value: Any) -> Any:
    return value
