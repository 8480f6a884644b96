"""The run's parameters, with access as ``params.lr``."""

from __future__ import annotations

import difflib
from typing import Any


class Params(dict):  # type: ignore[type-arg]  # dict[str, Any] as a base needs Python 3.9
    """A dict whose keys can be read as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            pass
        near = difflib.get_close_matches(name, [str(key) for key in self], n=1)
        hint = f"did you mean {near[0]}?" if near else "add it to `params` of the config"
        raise AttributeError(f"no parameter {name!r}: {hint}")
