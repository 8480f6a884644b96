"""State dicts as torch loads them again without executing what a file says: tensors, plain values.

Numbers of numpy, which get into optimizers by way of learning rates, become Python's. What else is
neither a tensor nor plain would be written by torch.save, verified, and then refused by every
resume. So it is refused here.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any


def pickled(state: Any, tensor: Callable[[Any], Any]) -> Callable[[], Any]:
    """``state`` as it is now, whatever becomes of its containers and values.

    Args:
        tensor: what each of its tensors is to be replaced by; asked once for each.

    Returns:
        What gives a value of the same structure.

    Raises:
        pickle.PicklingError, TypeError, AttributeError: it holds what cannot be pickled.
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
    text = file.getvalue()  # of this process, and read by nobody else
    return lambda: Unpickler(io.BytesIO(text)).load()


def require_plain(file_name: str, state: Any, proven: set[type]) -> None:
    """Make sure that ``state``, saved as ``file_name``, can be loaded again.

    Args:
        proven: kinds of tensors of which one was loaded again; such are not written, so that this
            costs little when it is asked at every save. Gets those of ``state``.

    Raises:
        TypeError: it holds more than tensors and plain values.
        pickle.PicklingError, AttributeError: it holds what cannot be pickled.
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
            f"lists, tuples and dicts of them, but has something else: {_what(str(error))}"
        ) from error
    proven |= new


def _what(said: str) -> str:
    """The sentence in which torch names it, without the advice around it."""
    return said[max(0, said.find("WeightsUnpickler error:")) :].split("\n")[0]


def _same(value: Any) -> Any:
    return value
