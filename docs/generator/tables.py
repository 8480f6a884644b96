"""Write a model as Markdown tables, one for each section, in the order of the fields."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

from pydantic import BaseModel

from docs.generator.fields import as_yaml, human_default, type_words
from hpcflow.documents.suggest import submodels


def sections(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Yield dotted name, model and description of ``model`` and every section in it."""
    yield path, model, inspect.cleandoc(model.__doc__ or "")
    for name, field in model.model_fields.items():
        for steps, section in submodels(field.annotation):
            below = f"{path}.{field.alias or name}".lstrip(".")
            below += "".join(".NAME" if step == "value" else "[]" for step in steps)
            yield from sections(section, below)


def table(model: type[BaseModel]) -> str:
    """Return the table of one section's values; sections in it have their own tables."""
    hints = get_type_hints(model, include_extras=True)
    rows = [
        _row(name, field, hints[name])
        for name, field in model.model_fields.items()
        if not any(True for _ in submodels(field.annotation))
    ]
    header = ["key", "type", "default", "what it is", "example"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(name: str, field: Any, hint: Any) -> list[str]:
    key = field.alias or name
    default = human_default(name, field)
    if field.is_required():
        told = "**required**"
    elif default in (None, "", [], {}):
        told = "–"
    else:
        told = _code(as_yaml(default))
    example = _code(f"{key}: {as_yaml(field.examples[0])}") if field.examples else ""
    words = type_words(hint).replace("|", "\\|")
    return [f"`{key}`", words, told, (field.description or "").replace("|", "\\|"), example]


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"
