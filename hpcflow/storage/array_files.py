"""Which runs were sent together as a Slurm array: the files ``sweeps/*/arrays/*.json`` of a home.

Read by every command that asks Slurm, so it imports next to nothing. They are written in
:mod:`hpcflow.storage.sweeps`.
"""

from __future__ import annotations

from contextlib import suppress

from hpcflow.runtime.reading import read_object
from hpcflow.storage.layout import Home


class ArrayFiles:
    """All arrays of a home: name -> the job names of the attempts that their tasks are.

    Each file is read once; it never changes.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._read: dict[str, dict[str, list[str]]] = {}

    def __call__(self) -> dict[str, list[str]]:
        """Those that there are now; what cannot be read is left out."""
        found: dict[str, list[str]] = {}
        for path in self._home.sweeps.glob("*/arrays/*.json"):
            name = str(path)
            if name not in self._read:
                with suppress(OSError, ValueError, KeyError, TypeError):
                    said = read_object(path)
                    self._read[name] = {str(said["name"]): [str(job) for job in said["jobs"]]}
            found |= self._read.get(name, {})
        return found
