"""Build the sweep and the base run of a Python function.

:mod:`hpcflow.config.signature` reads its parameters; :mod:`hpcflow.runtime.calling` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from hpcflow.config import LoadedSpec
from hpcflow.config.chain import read_chain
from hpcflow.config.files import check_files
from hpcflow.config.merge import merge, parse_override
from hpcflow.config.paths import absolute, with_absolute_paths
from hpcflow.config.signature import Signature, read_signature, require_fit
from hpcflow.config.sweep import LoadedSweep, of_the_sweep, require_base, without_section_nulls
from hpcflow.documents import Document, Place, read_document, validate
from hpcflow.documents.reader import parse_value
from hpcflow.errors import InputError, SpecError, Where, shell_word
from hpcflow.model.scalars import printable
from hpcflow.model.spec import RunSpec
from hpcflow.model.sweep import MAX_NAME_CHARS, SweepSpec
from hpcflow.ownership import require_closed_folder
from hpcflow.runtime.calling import VALUE
from hpcflow.working_dir import START

#: ``FILE.py:FUNCTION`` on the command line.
_FUNCTION: Final = re.compile(r"(.+\.py):([^:/]*)", re.DOTALL)
_CALLER: Final = ("python3", "-u", "-c", START, "hpcflow.runtime", "call")
_AGAIN: Final = "correct it, if it is a key with --set KEY=VALUE, then start it again"


def function_in(text: str) -> tuple[Path, str] | None:
    """Return file and name of the function that ``text`` names; None if it names a sweep's file.

    Raises:
        InputError: it names a Python file, but no function.
    """
    found = _FUNCTION.fullmatch(text)
    if found is None and not text.endswith(".py"):
        return None
    path, name = (Path(found[1]), found[2]) if found else (Path(text), "")
    if not name.isidentifier():
        raise InputError(
            "which function of this file? Append ':' and its name",
            where=Where(file=printable(text)),
            next_action=f"hpcflow sweep start {shell_word(path)}:objective --space SPACE "
            "--direction minimize",
        )
    return path, name


def load_function_sweep(
    path: Path,
    function: str,
    *,
    space: str,
    base: Path | None,
    metrics: Sequence[str],
    directions: Sequence[str],
    name: str | None,
    overrides: Sequence[str],
) -> LoadedSweep:
    """Return the sweep of a function in a Python file, which is parsed, not executed.

    Args:
        space: a YAML file, or the space itself as YAML in braces.
        overrides: as for ``--set``; those of ``base.KEY`` apply to the base run.

    Raises:
        SpecError: the function, the space, an override or the base run is wrong, or they do not
            fit together.
        InputError: another user can create files in the folder of the function.
    """
    file = absolute(str(path), Path.cwd())
    signature = read_signature(path, function)
    require_closed_folder(file.parent)
    base_file = file if base is None else absolute(str(base), Path.cwd())
    values = {"name": name or name_from(path.stem), "base": str(base_file)}
    document = _over_space(path, values | goals_of(metrics, directions), _space(space))
    for override in overrides:
        if not _is_of_base(override):
            document = merge(document, of_the_sweep(parse_override(override), Path.cwd()))
    return load_function(
        without_section_nulls(document),
        signature,
        lambda metrics: [*_CALLER, f"{file}:{function}", *metrics],
        [_of_base(each) for each in overrides if _is_of_base(each)],
        source=file,
        working_dir=file.parent,
    )


def load_function(
    document: Document,
    signature: Signature,
    command: Callable[[list[str]], list[str]],
    changes: Sequence[Document],
    *,
    source: Path,
    working_dir: Path,
) -> LoadedSweep:
    """Return the sweep in ``document``, with a function as its program.

    Args:
        command: the names of the objectives -> the command that executes the function in a job.
        changes: overrides of the base run.
        source: the value of ``base`` if the base run is only the site's defaults.

    Raises:
        SpecError: as for :func:`load_function_sweep`.
    """
    spec = validate(SweepSpec, document, SpecError, next_action=_AGAIN)
    metrics = [goal.metric for goal in spec.goals]
    for metric in metrics:
        if metric.startswith("-"):  # it becomes an argument
            raise SpecError(
                f"the name of a metric cannot begin with '-': {metric}",
                where=Where(key="--metric"),
                next_action="choose another name",
            )
    run = _base(spec, document, source)
    program = {"command": command(metrics), "script": None, "args": None, "resume_args": None}
    for each in (*changes, Document(None, program, Place(None, None))):
        run = merge(run, each)
    base = validate(RunSpec, run, SpecError, next_action=_AGAIN)
    check_files(base, run)
    require_fit(signature, spec.space, base.params)
    return LoadedSweep(spec, document, LoadedSpec(base, run, working_dir))


def name_from(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")
    return name[:MAX_NAME_CHARS] or "function"


def _base(spec: SweepSpec, document: Document, source: Path) -> Document:
    """Return the base run, merged over defaults for one call of a function."""
    defaults = {"name": spec.name, "launch": {"framework": "none"}}
    bare = Document(source, defaults, Place(document.place.file, None))
    if spec.base == str(source):
        return bare
    try:
        require_base(spec, document)
    except SpecError as error:
        error.where, error.next_action = Where(key="--base"), "name the YAML file of a run"
        raise
    return merge(bare, read_chain(Path(spec.base)))


def _is_of_base(override: str) -> bool:
    return override.strip().startswith("base.")


def _of_base(override: str) -> Document:
    """Return an override such as ``base.resources.nodes=2`` as one of the base run."""
    data = parse_override(override).data["base"]
    return with_absolute_paths(Document(None, data, Place("--set base", None)), Path.cwd())


def goals_of(metrics: Sequence[str], directions: Sequence[str]) -> dict[str, Any]:
    """Return ``objective`` or ``objectives`` as in a sweep's file.

    Raises:
        InputError: the numbers of metrics and directions differ.
    """
    names = list(metrics) or [VALUE]
    if not directions:
        raise InputError(
            f"no direction is given, so hpcflow cannot tell which {names[0]} is better",
            where=Where(key="--direction"),
            next_action="add --direction minimize, or --direction maximize",
        )
    if len(names) != len(directions):
        raise InputError(
            f"the numbers of metrics and directions differ: {len(names)} and {len(directions)}",
            where=Where(key="direction"),
            next_action="give one direction for each metric, in the same order",
        )
    goals = [{"metric": m, "direction": d} for m, d in zip(names, directions, strict=True)]
    return {"objectives": goals} if len(goals) > 1 else {"objective": goals[0]}


def _space(text: str) -> tuple[Any, Place]:
    if not text.lstrip().startswith("{"):
        document = read_document(Path(text), SpecError)
        data = {key: value for key, value in document.data.items() if key != "$schema"}
        return data, document.place
    try:
        return parse_value(text.strip(), SpecError)[0], Place("--space", None)
    except SpecError as error:
        error.where = Where(key="--space")
        error.next_action = "write it like --space '{lr: {low: 1e-5, high: 0.1, log: true}}'"
        raise


def _over_space(path: Path, values: dict[str, Any], space: tuple[Any, Place]) -> Document:
    file = printable(str(path))
    return Document(path, values | {"space": space[0]}, Place(file, None, {"space": space[1]}))
