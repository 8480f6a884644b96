"""The kind of a YAML file, for a command that was given the wrong kind."""

from __future__ import annotations

from typing import Final, Literal

from hpcflow.documents.document import Document
from hpcflow.errors import InputError, Where, shell_word

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
