"""Read which runs were submitted together as a Slurm array, from ``sweeps/*/arrays/*.json``.

:mod:`hpcflow.storage.sweeps` writes these files. Every command that asks Slurm imports this module,
so it imports little.
"""

from __future__ import annotations

from contextlib import suppress

from hpcflow.runtime.reading import read_object
from hpcflow.storage.layout import Home


class ArrayFiles:
    """Read the arrays of a home. Each file is read once; it never changes."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._read: dict[str, dict[str, list[str]]] = {}

    def __call__(self) -> dict[str, list[str]]:
        """Return array name -> job names of its attempts; skip files that cannot be read."""
        found: dict[str, list[str]] = {}
        for path in self._home.sweeps.glob("*/arrays/*.json"):
            name = str(path)
            if name not in self._read:
                with suppress(OSError, ValueError, KeyError, TypeError):
                    content = read_object(path)
                    self._read[name] = {str(content["name"]): [str(job) for job in content["jobs"]]}
            found |= self._read.get(name, {})
        return found
