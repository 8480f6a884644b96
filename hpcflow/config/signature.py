"""Read the parameters of a Python function without executing it, and check the space against them.

:mod:`hpcflow.runtime.calling` calls the function.
"""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from hpcflow.errors import InputError, SpecError, Where, shell_word
from hpcflow.model.scalars import printable, shortened
from hpcflow.model.space import Space
from hpcflow.runtime.calling import PARAMS, RUN
from hpcflow.runtime.reading import open_file

#: Parsing takes memory of up to a thousand times the size of the file.
_MAX_BYTES: Final = 256 << 10
#: How many functions an error names, and how many it compares with a misspelled name.
_NAMED: Final = 20
_COMPARED: Final = 200
_AGAIN: Final = "name a function in a Python file: hpcflow sweep start objective.py:objective"


@dataclass(frozen=True)
class Taken:
    """One parameter of a function."""

    name: str
    line: int | None
    has_default: bool
    by_position_alone: bool = False


@dataclass(frozen=True)
class Signature:
    """The parameters of a function.

    Attributes:
        file: None if unknown.
        takes_all: whether it has ``**kwargs``.
        is_known: False if a decorator may have changed the parameters.
    """

    name: str
    file: str | None
    line: int | None
    taken: tuple[Taken, ...]
    takes_all: bool
    is_known: bool = True

    @property
    def takes_run(self) -> bool:
        """Return whether it takes the run, to report intermediate values."""
        return any(each.name == RUN for each in self.taken)


def read_signature(path: Path, name: str) -> Signature:
    """Return the parameters of the function ``name`` at the top level of the Python file ``path``.

    Raises:
        SpecError: the file is missing or not Python, or has no such function.
    """
    file = printable(str(path))
    found = {each.name: each for each in _functions(_parsed(path, file).body)}
    if name not in found:
        near = get_close_matches(name, list(found)[:_COMPARED], n=1)
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        known = ", ".join(list(found)[:_NAMED]) + more or "none"
        hint = f"did you mean {near[0]}?" if near else f"there are: {known}"
        raise SpecError(
            f"no function {shortened(name)} at its top level; {hint}",
            where=Where(file=file),
            next_action=_AGAIN
            if not found
            else f"name one: {path.name}:{near[0] if near else next(iter(found))}",
        )
    function = found[name]
    if isinstance(function, ast.AsyncFunctionDef):
        raise SpecError(
            f"{name}() is async, and would never be awaited",
            where=Where(file=file, line=function.lineno),
            next_action="write `def`, and call asyncio.run() in it",
        )
    return Signature(
        name,
        file,
        function.lineno,
        tuple(_taken(function.args)),
        function.args.kwarg is not None,
        is_known=not function.decorator_list,
    )


def signature_of(function: Callable[..., Any]) -> Signature:
    """Return the parameters of a function object.

    Raises:
        InputError: it is not a function, or Python does not know its parameters.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"not a function with known parameters: {error}",
            next_action="give a function: hpcflow.sweep(lambda lr: ..., {'lr': ...})",
        ) from None
    code = getattr(inspect.unwrap(function), "__code__", None)
    line = code.co_firstlineno if code else None
    taken = tuple(
        Taken(
            each.name,
            line,
            each.default is not each.empty,
            by_position_alone=each.kind is each.POSITIONAL_ONLY,
        )
        for each in parameters
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    )
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return Signature(name, code.co_filename if code else None, line, taken, takes_all)


def require_fit(signature: Signature, space: Space, params: Mapping[str, Any]) -> None:
    """Check that each parameter of the function has a value, and that it takes all that vary.

    Args:
        params: of the base run, which all trials have.

    Raises:
        SpecError: a parameter has no value, or the function does not take one that varies.
    """
    varying = {each.name: each for each in space.parameters}
    always = {*params, *space.constants, *(n for n, each in varying.items() if not each.when)}
    if RUN in always | varying.keys():
        raise SpecError(
            "`run` is reserved: a function gets the run itself under this name",
            where=Where(key=f"space.{RUN}"),
            next_action="choose another name for the parameter",
        )
    rest = [each for each in signature.taken if each.name != RUN]
    takes_one = [each.name for each in rest] == [PARAMS] and PARAMS not in always | varying.keys()
    if takes_one or not signature.is_known:
        return
    for each in rest:
        problem = _missing(each, always, varying.keys())
        if problem is not None:
            raise SpecError(
                f"{signature.name}() {problem[0]}",
                where=Where(file=signature.file, line=each.line),
                next_action=problem[1],
            )
    names = {each.name for each in rest}
    unused = [name for name in varying if name not in names]
    if unused and not signature.takes_all and not signature.takes_run:
        near = get_close_matches(unused[0], sorted(names), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SpecError(
            f"{signature.name}() does not take {unused[0]}, which varies{hint}",
            where=Where(file=signature.file, line=signature.line, key=f"space.{unused[0]}"),
            next_action=f"add {unused[0]} to its parameters, or remove it from the space",
        )


def _missing(taken: Taken, always: set[str], varying: Any) -> tuple[str, str] | None:
    """Return what is wrong with a parameter, and what to do about it; None if nothing is."""
    name = taken.name
    if taken.by_position_alone:
        return f"takes {name} only by position, but is called by name", "remove the `/`"
    if taken.has_default or name in always:
        return None
    if name in varying:
        return f"needs {name}, which not all trials have", f"give it a default: {name}=None"
    space = f"give it a default, or put {name} into the space"
    return f"needs {name}, which no trial has", f"{space} or into `params` of the base run"


def _parsed(path: Path, file: str) -> ast.Module:
    try:
        with open_file(path, follow=True, any_owner=True) as stream:
            content = stream.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise SpecError(
            f"cannot be read: {reason}", where=Where(file=file), next_action=_AGAIN
        ) from None
    if len(content) > _MAX_BYTES:
        raise SpecError(
            f"larger than {_MAX_BYTES >> 10} KiB, the most in which hpcflow looks for a function",
            where=Where(file=file),
            next_action="move the function into a smaller file that imports the rest",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the job prints them
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SpecError(
            f"not Python: {message}",
            where=Where(file=file, line=getattr(error, "lineno", None)),
            next_action=f"correct it, then: python3 -m py_compile {shell_word(path)}",
        ) from None


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions at the top level, also inside an ``if``, ``try`` or ``with`` there."""
    ahead: list[ast.AST] = list(reversed(body))
    while ahead:  # not recursive: thousands of `elif` are as many nested `if`
        statement = ahead.pop()
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement
        elif isinstance(statement, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            parts = ("body", "handlers", "orelse", "finalbody")
            inside = [each for part in parts for each in getattr(statement, part, ())]
            ahead.extend(reversed(inside))


def _taken(arguments: ast.arguments) -> Iterator[Taken]:
    by_place = [*arguments.posonlyargs, *arguments.args]
    first_default = len(by_place) - len(arguments.defaults)
    for index, each in enumerate(by_place):
        alone = index < len(arguments.posonlyargs)
        yield Taken(each.arg, each.lineno, index >= first_default, by_position_alone=alone)
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Taken(each.arg, each.lineno, default is not None)
