"""A document: values, the file and line of each, and the kind of file that it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from hpcflow.errors import InputError, Where, shell_word
from hpcflow.model.scalars import printable

KeyPath = tuple[str | int, ...]

_DOTTED: Final = re.compile(r"\w+(?:\.\w+|\[[0-9]{1,9}\])*", re.ASCII)
_STEP: Final = re.compile(r"\[([0-9]+)\]|(\w+)", re.ASCII)
Purpose = Literal["run", "sweep", "site"]

#: Keys at the top that only one kind of file has.
_MARKS: Final[dict[Purpose, frozenset[str]]] = {
    "run": frozenset({"command", "script"}),
    "sweep": frozenset({"space", "objective", "objectives"}),
    "site": frozenset({"partitions"}),
}
_CALLED: Final[dict[Purpose, str]] = {
    "run": "the config of a run",
    "sweep": "the file of a sweep",
    "site": "a site file",
}
_COMMANDS: Final[dict[Purpose, str]] = {
    "run": "hpcflow run {} --dry-run",
    "sweep": "hpcflow sweep start {} --dry-run",
    "site": "hpcflow site show {}",
}


@dataclass(slots=True)
class Place:
    """The place of a value, and the places of its parts.

    Attributes:
        file: as it is shown in messages; None for an override.
        line: counted from 1, of the key of a value or of the dash of an item.
        children: key or index -> its place. Parts of an alias have none.
    """

    file: str | None
    line: int | None
    children: dict[str | int, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """The values of one YAML file, or of a chain of files and overrides merged into one.

    Attributes:
        path: the file; the last one of a chain.
        data: the mapping at its top.
        place: the place of the values.
    """

    path: Path | None
    data: dict[str, Any]
    place: Place

    def line(self, key_path: KeyPath) -> int | None:
        """Return the line of a key or item; if it does not exist, that of its section."""
        place, _ = self._find(key_path)
        return None if place is self.place else place.line

    def where(self, key_path: KeyPath) -> Where:
        """Return file, line and dotted key; for the value of an override, ``--set`` and the key."""
        place, exact = self._find(key_path)
        key = dotted(key_path) or None
        if place.file is None:
            return Where(key=f"--set {key}") if exact else Where(file=self.place.file, key=key)
        return Where(file=place.file, line=self.line(key_path), key=key)

    def located(self, where: Where | None) -> Where | None:
        """Return ``where`` with the place of its key, if it has only the key, such as ``args[1]``.

        Errors of code that does not know the document have such a ``where``. A key that is not a
        key of a document stays as it is.
        """
        if where is None or where.line is not None or where.key is None:
            return where
        path = key_path(where.key)
        return where if path is None else self.where(path)

    def _find(self, key_path: KeyPath) -> tuple[Place, bool]:
        """Return the place of ``key_path``, or of the nearest section; and whether it is exact."""
        place = self.place
        for key in key_path:
            child = place.children.get(key)
            if child is None:
                return place, False
            place = child
        return place, True


def key_path(text: str) -> KeyPath | None:
    """Return the inverse of :func:`dotted` if all keys are plain words, else None."""
    if not _DOTTED.fullmatch(text):
        return None
    return tuple(int(index) if index else name for index, name in _STEP.findall(text))


def dotted(key_path: KeyPath) -> str:
    """Return a text such as ``environment.container.mounts[0]``."""
    text = ""
    for key in key_path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{_key(key)}" if text else _key(key)
    return text


def _key(key: str) -> str:
    return printable(key) if key and len(key) <= 80 else repr(key[:80])


def require_purpose(document: Document, wanted: Purpose, error: type[InputError]) -> None:
    """Refuse a file of another kind.

    Raises:
        InputError: of the class ``error``, with the command for such a file.
    """
    found = [purpose for purpose, marks in _MARKS.items() if marks & document.data.keys()]
    if len(found) != 1 or found == [wanted]:
        return
    (is_for,) = found
    raise error(
        f"this is {_CALLED[is_for]}, not {_CALLED[wanted]}",
        where=Where(file=document.place.file),
        next_action=_COMMANDS[is_for].format(shell_word(document.path)),
    )
