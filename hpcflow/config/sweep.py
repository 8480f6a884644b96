"""Read a sweep's YAML into the frozen sweep and the base run of its trials."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcflow.config import LoadedSpec, load_spec
from hpcflow.config.merge import merge, parse_override, without_nulls
from hpcflow.config.paths import absolute
from hpcflow.documents import Document, read_document, require_purpose, validate
from hpcflow.documents.suggest import nearest_file
from hpcflow.errors import InputError, SpecError, Where, shell_word
from hpcflow.model.scalars import printable
from hpcflow.model.sweep import SweepSpec


@dataclass(frozen=True)
class LoadedSweep:
    """A sweep and its base run.

    Attributes:
        document: the sweep's values, with the file and line of each; ``base`` is absolute.
    """

    spec: SweepSpec
    document: Document
    base: LoadedSpec


def load_sweep(path: Path, overrides: Sequence[str] = ()) -> LoadedSweep:
    """Return the sweep in ``path``, with ``overrides`` such as ``budget.trials=20``.

    Raises:
        SpecError: the sweep's file, or that of its base run, is wrong; it lists all wrong values
            of one file.
    """
    read = read_document(path, SpecError)
    require_purpose(read, "sweep", SpecError)
    document = without_section_nulls(of_the_sweep(read, absolute(".", path.parent)))
    for override in overrides:
        document = merge(document, of_the_sweep(parse_override(override), Path.cwd()))
    file = shell_word(path)
    again = f"correct it, then check it: hpcflow sweep start {file} --dry-run"
    spec = validate(SweepSpec, document, SpecError, next_action=again)
    return LoadedSweep(spec, document, _base(spec, document))


def of_the_sweep(document: Document, base_dir: Path) -> Document:
    """Return ``document`` without ``$schema``, and with ``base`` resolved against ``base_dir``."""
    data = {key: value for key, value in document.data.items() if key != "$schema"}
    base = data.get("base")
    if isinstance(base, str) and base and "\0" not in base and not base.startswith("-"):
        data["base"] = str(absolute(base, base_dir))
    return Document(document.path, data, document.place)


def without_section_nulls(document: Document) -> Document:
    """Remove each ``null`` that means the default; below ``space`` it is a value."""
    space = document.data.get("space")
    rest = {key: value for key, value in document.data.items() if key != "space"}
    bare = without_nulls(Document(document.path, rest, document.place))
    if space is None:
        return bare
    place = bare.place
    place.children["space"] = document.place.children["space"]
    return Document(document.path, {**bare.data, "space": space}, place)


def require_base(spec: SweepSpec, document: Document) -> None:
    """Refuse a base run whose file is missing."""
    if not os.path.isfile(spec.base):  # noqa: PTH113 - Path raises for a name that is too long
        where = document.where(("base",))
        is_there = os.path.exists(spec.base)  # noqa: PTH110 - as above
        name, seen_from = printable(spec.base), "the file that contains it"
        near = nearest_file(spec.base)
        hint = f"did you mean {near!r}? " if near else ""
        raise SpecError(
            f"{name} is not a file" if is_there else f"there is no file {name}",
            where=where,
            next_action=f"{hint}name the YAML file of a run; the path is relative to "
            + (seen_from if where.file else "the current folder"),
        )


def _base(spec: SweepSpec, document: Document) -> LoadedSpec:
    require_base(spec, document)
    try:
        return load_spec(Path(spec.base))
    except InputError as error:
        error.next_action = f"check the base run: hpcflow render {shell_word(spec.base)}"
        error.where = error.where or Where(file=spec.base)
        raise
