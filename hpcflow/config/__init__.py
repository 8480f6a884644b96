"""Read a run's YAML into a :class:`~hpcflow.model.spec.RunSpec`: files, overrides, paths, checks.

:mod:`hpcflow.model.spec` describes the keys; :mod:`hpcflow.sites.placement` checks whether they fit
a site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcflow.config.chain import read_chain
from hpcflow.config.files import check_files
from hpcflow.config.merge import granted_document, merge, parse_override
from hpcflow.config.paths import with_absolute_paths
from hpcflow.documents import Document, Place, validate
from hpcflow.errors import SpecError, shell_word
from hpcflow.model.spec import RunSpec, as_config


@dataclass(frozen=True)
class LoadedSpec:
    """A spec and its source.

    Attributes:
        document: the merged values, with the file and line of each key.
        base_dir: absolute; the folder of the config file.
    """

    spec: RunSpec
    document: Document
    base_dir: Path


def change_spec(spec: RunSpec, overrides: Sequence[str], *, checks_files: bool = False) -> RunSpec:
    """Return a frozen spec with ``overrides`` such as ``a.b=2``.

    Args:
        checks_files: check the files that the new spec names, as :func:`load_spec` does.

    Raises:
        SpecError: an override is wrong, or a file that the spec names is missing.
    """
    document = Document(None, as_config(spec), Place(None, None))
    for override in overrides:
        document = merge(document, with_absolute_paths(parse_override(override), Path.cwd()))
    changed = validate(RunSpec, document, SpecError, next_action="correct the values of --set")
    if checks_files:
        check_files(changed, document)
    return changed


def load_spec(
    path: Path, overrides: Sequence[str] = (), *, granted: Mapping[str, Any] | None = None
) -> LoadedSpec:
    """Return the spec in ``path``, with the files it extends and ``overrides`` such as ``a.b=2``.

    Args:
        granted: values for keys of ``resources``, which override those of the files.

    Raises:
        SpecError: a file, a value or an override is wrong, or a file that the spec names is
            missing. All wrong values are listed at once.
    """
    base_dir = Path.cwd() if path.parent == Path() else path.parent.absolute()
    document = read_chain(path)
    if granted:
        document = merge(document, granted_document(granted))
    for override in overrides:
        document = merge(document, with_absolute_paths(parse_override(override), Path.cwd()))
    again = f"correct it, then check it: hpcflow render {shell_word(path)}"
    spec = validate(RunSpec, document, SpecError, next_action=again)
    check_files(spec, document)
    return LoadedSpec(spec, document, base_dir)
