"""Read a config, and the files that it inherits from with ``extends``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from hpcflow.config.merge import merge, without_nulls
from hpcflow.config.paths import absolute, relative, with_absolute_paths
from hpcflow.documents import Document, Place, read_document, require_purpose
from hpcflow.errors import SpecError, Where, shell_word
from hpcflow.model.scalars import printable, shown

MAX_FILES: Final = 16
_KEY: Final = "extends"
#: Suffix of a program given in place of a config -> the key that executes it.
PROGRAMS: Final = {
    ".py": "script: {}",
    **dict.fromkeys((".sh", ".bash", ".sbatch", ".slurm"), "command: [bash, {}]"),
}
#: Keys about the file, not about the run.
_FILE_KEYS: Final = (_KEY, "$schema")


def read_chain(path: Path) -> Document:
    """Return ``path`` merged over the chain of files that it extends, with absolute paths.

    Raises:
        SpecError: a file cannot be read, or the files extend each other in a circle.
    """
    _require_no_program(path)
    documents: list[Document] = []
    seen: set[str] = set()
    following: Path | None = path
    while following is not None:
        document = read_document(following, SpecError)
        require_purpose(document, "run", SpecError)
        documents.append(document)
        seen.add(os.path.realpath(following))
        following = _extended(document, following)
        if following is not None:
            _check_chain(documents, following, seen)
    merged = without_nulls(_without_file_keys(documents.pop()))
    while documents:
        merged = merge(merged, _without_file_keys(documents.pop()))
    return merged


def _require_no_program(path: Path) -> None:
    """Refuse a program, as in ``hpcflow run train.py``, and show a config for it."""
    key = PROGRAMS.get(path.suffix)
    if key is None:
        return
    name = json.dumps(printable(path.name), ensure_ascii=False)  # a JSON string is also valid YAML
    config = shell_word(path.with_name("config.yaml"))  # a path in it is relative to its folder
    raise SpecError(
        "this is a program; `hpcflow run` needs a config that names it",
        where=Where(file=printable(str(path))),
        next_action=f"write this line to {config}: {{name: my-first-run, {key.format(name)}}}; "
        f"then: hpcflow run {config} --dry-run",
    )


def _extended(document: Document, path: Path) -> Path | None:
    """Return the file that the file at ``path`` extends; None if it extends none."""
    value = document.data.get(_KEY)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise SpecError(
            f"expected the path of a YAML file, got {shown(value)}",
            where=document.where((_KEY,)),
            next_action="write it like: extends: ../base.yaml",
        )
    target = Path(os.path.expanduser(value))  # noqa: PTH111 - Path raises for an unknown ~user
    target = path.parent / target
    if not os.path.isfile(target):  # noqa: PTH113 - Path raises for a name that is too long
        raise SpecError(
            f"there is no file {printable(str(target))}",
            where=document.where((_KEY,)),
            next_action=relative(value, base=path.parent),
        )
    return target


def _check_chain(documents: list[Document], following: Path, seen: set[str]) -> None:
    files = [str(document.place.file) for document in documents]
    where = documents[-1].where((_KEY,))
    if os.path.realpath(following) in seen:
        raise SpecError(
            f"these files extend each other in a circle: {' → '.join([*files, str(following)])}",
            where=where,
            next_action="remove one `extends`",
        )
    if len(documents) == MAX_FILES:
        raise SpecError(
            f"a chain of more than {MAX_FILES} files",
            where=where,
            next_action="put the shared keys into fewer files",
        )


def _without_file_keys(document: Document) -> Document:
    data = {key: value for key, value in document.data.items() if key not in _FILE_KEYS}
    place = Place(document.place.file, document.place.line, document.place.children)
    assert document.path is not None
    return with_absolute_paths(
        Document(document.path, data, place), absolute(".", document.path.parent)
    )
