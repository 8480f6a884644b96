"""Generate the JSON Schemas of ``--json`` output from the types that the commands name.

The schema of a type describes the JSON that :func:`hpcflow.cli.output.jsonable` makes of its
values. Other keys are not allowed.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from decimal import Decimal
from enum import Enum
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import click
from pydantic import BaseModel

from docs.generator.schemas import DRAFT
from hpcflow.cli.arguments import JsonOption
from hpcflow.cli.main import COMMANDS
from hpcflow.cli.output import FORMAT, ErrorOutput

#: Where the schemas are, below docs/.
OUTPUT: Final = "schema/output"

_TYPES: Final[dict[Any, Any]] = {
    str: "string",
    int: "integer",
    float: ["number", "null"],  # a value that is not finite is null
    bool: "boolean",
    type(None): "null",
    Path: "string",
    Decimal: "string",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the full name of every command that can be called, and the command."""
    for name, (module, _) in COMMANDS.items():
        command = import_module(module).command
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command
        if isinstance(command, click.Group):
            for below, each in command.commands.items():
                yield f"{name} {below}", each


def json_option_of(command: click.Command) -> JsonOption | None:
    """Return the ``--json`` of a command; None if it has none."""
    return next((each for each in command.params if isinstance(each, JsonOption)), None)


def schema_name(command: str) -> str:
    return f"{command.replace(' ', '-')}.schema.json"


def output_schemas() -> dict[str, dict[str, Any]]:
    """Return file name -> schema."""
    schemas = {"error.schema.json": _document("hpcflow --json, an error", [ErrorOutput])}
    for name, command in commands():
        option = json_option_of(command)
        if option is not None:
            outputs = [
                resolve_name(output) if isinstance(output, str) else output
                for output in option.outputs
            ]
            schemas[schema_name(name)] = _document(f"hpcflow {name} --json", outputs)
    return schemas


def _imported_for_types(module: types.ModuleType) -> dict[str, Any]:
    """Return what ``module`` imports for type checkers only."""
    found: dict[str, Any] = {}
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for each in statement.body:
                if isinstance(each, ast.ImportFrom) and each.module is not None:
                    source = import_module(each.module)
                    for name in each.names:
                        found[name.asname or name.name] = getattr(source, name.name)
    return found


def _document(title: str, outputs: Sequence[Any]) -> dict[str, Any]:
    """Return the schema of a document that is one of ``outputs``."""
    builder = _Builder()
    documents = {each.__name__: builder.fields(each, is_document=True) for each in outputs}
    if len(documents) == 1:
        (body,) = documents.values()
    else:
        body = {"anyOf": [{"title": name, **each} for name, each in documents.items()]}
    defs = {"$defs": dict(sorted(builder.defs.items()))} if builder.defs else {}
    return {"$schema": DRAFT, "title": title, **body, **defs}


class _Builder:
    """Makes schemas of types; those of classes go to ``defs``."""

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        self._classes: dict[str, Any] = {}

    def fields(self, cls: Any, *, is_document: bool = False) -> dict[str, Any]:
        """Return the schema of a dataclass or a TypedDict."""
        bases = [each for each in cls.__mro__ if each.__module__.startswith("hpcflow.")]
        lazy = [_imported_for_types(import_module(each.__module__)) for each in bases]
        names = {name: value for each in reversed(lazy) for name, value in each.items()}
        hints = get_type_hints(cls, localns=names)
        if issubclass(cls, BaseModel):
            hints = {name: hints[name] for name in cls.model_fields}
        told = {name: text for each in reversed(bases) for name, text in _attributes(each)}
        properties = {
            name: {**({"description": told[name]} if name in told else {}), **self.of(hint)}
            for name, hint in hints.items()
        }
        required = [name for name in hints if name not in getattr(cls, "__optional_keys__", ())]
        if is_document:
            properties = {"format": {"const": FORMAT}, **properties}
            required = ["format", *required]
        return {
            **_description(cls),
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def of(self, hint: Any) -> dict[str, Any]:
        """Return the schema of the values of a type."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in _TYPES:
            return {"type": _TYPES[hint]}
        if hint in (Any, object):
            return {}
        if hint is datetime:
            return {"type": "string", "format": "date-time"}
        if origin in (Union, types.UnionType):
            return _any_of([self.of(each) for each in arguments])
        if origin is Literal:
            return {"enum": list(arguments)}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if isinstance(origin, type) and issubclass(origin, (Sequence, Set)):
            assert arguments[1:] in ((), (...,)), f"{hint}: the items of a list are of one type"
            return {"type": "array", "items": self.of(arguments[0])}
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"enum": [member.value for member in hint]}
        return self._class(hint)

    def _class(self, cls: Any) -> dict[str, Any]:
        name = cls.__name__.lstrip("_")
        if name not in self._classes:
            self._classes[name] = cls
            self.defs[name] = self.fields(cls)
        assert self._classes[name] is cls, f"two classes are called {name}"
        return {"$ref": f"#/$defs/{name}"}


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a value that matches one of ``schemas``."""
    if {} in schemas:
        return {}
    plain = [each["type"] for each in schemas if set(each) == {"type"}]
    words = [word for each in plain for word in (each if isinstance(each, list) else [each])]
    every_type = list(dict.fromkeys(words))
    one = [{"type": every_type if every_type[1:] else every_type[0]}] if words else []
    rest = [each for each in schemas if set(each) != {"type"}]
    every = [*rest, *one]
    return every[0] if len(every) == 1 else {"anyOf": every}


def _description(cls: Any) -> dict[str, Any]:
    """Return the first paragraph of the docstring of a class."""
    text = inspect.cleandoc(cls.__doc__ or "")
    if not text or text.startswith(f"{cls.__name__}("):
        return {}
    return {"description": _one_line(text.split("\n\n")[0])}


def _attributes(cls: Any) -> Iterator[tuple[str, str]]:
    """Yield the attributes in the docstring of a class, and their descriptions."""
    _, _, text = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")
    for entry in re.split(r"\n(?=    \S)", text.split("\n\n")[0]):
        name, _, words = entry.strip().partition(": ")
        if name.isidentifier():
            yield name, _one_line(words)


def _one_line(text: str) -> str:
    """Return text of a docstring on one line, in terms of JSON."""
    line = re.sub(r":\w+:`[~.]?(?:\w+\.)*(\w+)`", r"`\1`", " ".join(text.split()))
    return re.sub(r"\bNone\b", "null", line.replace("``", "`"))
