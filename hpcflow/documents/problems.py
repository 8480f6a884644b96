"""Validate a document against a pydantic model; report all problems in plain words."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hpcflow.documents.document import Document, KeyPath
from hpcflow.errors import InputError, Where
from hpcflow.model.scalars import shortened, shown
from hpcflow.model.secret import is_secret, names_secret, redact, secret_keys

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    M = TypeVar("M", bound=BaseModel)

MAX_LISTED: Final = 10

#: Keys that Slurm and `ls` show to other users.
_NAMES: Final = frozenset({"name", "project", "tags"})
_URLS: Final = frozenset({"mirror", "url"})

_MESSAGES: Final = {
    "missing": "is missing",
    "int_type": "expected a whole number, got {got}",
    "int_from_float": "expected a whole number, got {got}",
    "string_type": "expected a text, got {got}",
    "bool_type": "expected true or false, got {got}",
    "list_type": "expected a list, got {got}",
    "dict_type": "expected keys with values (key: value), got {got}",
    "model_type": "expected keys with values (key: value), got {got}",
    "enum": "expected {expected}, got {got}",
    "literal_error": "expected {expected}, got {got}",
    "greater_than_equal": "must be {ge} or more, got {got}",
    "less_than_equal": "must be {le} or less, got {got}",
    "greater_than": "must be more than {gt}, got {got}",
    "less_than": "must be less than {lt}, got {got}",
    "string_too_long": "longer than {max_length} characters: {got}",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "too_long": "longer than {max_length} items",
    "float_type": "expected a number, got {got}",
    "decimal_parsing": "expected a number, got {got}",
    "decimal_type": "expected a number, got {got}",
    "finite_number": "expected a number, got {got}",
}
#: Kinds of problem whose message shows an example.
_OF_TYPE: Final = frozenset({
    "missing", "int_type", "int_from_float", "string_type", "bool_type", "list_type", "dict_type",
    "model_type", "float_type", "decimal_parsing", "decimal_type",
})  # fmt: skip
_CHOICES: Final = ("enum", "literal_error")
_NOT_SHOWN: Final = "a value that is not shown here"


def validate(
    model: type[M], document: Document, error: type[InputError], *, next_action: str | None = None
) -> M:
    """Return ``document`` as a ``model``.

    Args:
        next_action: what to do after the file is corrected; there is a default.

    Raises:
        InputError: of the class ``error``, with all problems.
    """
    from pydantic import ValidationError

    secret = list(secret_keys(document.data))
    listed = [(document.where(path), _secret_message(path)) for path in secret[:MAX_LISTED]]
    number = len(secret)
    try:
        found = model.model_validate(document.data, by_alias=True, by_name=False)
    except ValidationError as problem:
        # Errors of pydantic about the secrets are duplicates, and could show them.
        beside = {way[:length] for way in secret for length in range(2, len(way) + 1)}
        whole = set(secret)
        for each in problem.errors(include_url=False):
            path = _path_of(each)
            if path in beside or any(path[:end] in whole for end in range(1, len(path) + 1)):
                continue
            number += 1
            if len(listed) < MAX_LISTED:  # in a large file, finding similar words takes minutes
                listed.append(_located_message(each, model, document))
    else:
        if not number:
            return found
    raise as_one_error(listed, number, document, error, next_action)


def as_one_error(
    listed: list[tuple[Where, str]],
    number: int,
    document: Document,
    error: type[InputError],
    next_action: str | None,
) -> InputError:
    """Return an error of the class ``error`` that reports ``number`` problems.

    Args:
        listed: the problems to list, each with its place.
        next_action: None for the default.
    """
    file = document.place.file
    next_action = next_action or (f"correct {file} and repeat the command" if file else None)
    if number == 1:
        where, message = listed[0]
        found = error(message, where=where, next_action=next_action)
    else:
        lines = [f"{where}: {message}" for where, message in listed]
        if number > MAX_LISTED:
            lines.append(f"and {number - MAX_LISTED} more")
        place = Where(file=file)
        found = error(f"{number} problems:", lines=lines, where=place, next_action=next_action)
    found.details["problems"] = [{**asdict(where), "message": message} for where, message in listed]
    return found


def _secret_message(path: KeyPath) -> str:
    if path[0] in _NAMES:
        return "looks like a secret, and all users can see names; choose another"
    if path[-1] in _URLS:
        return "credentials do not belong in a URL; hpcflow takes them from the standard chain"
    if path[0] in _URLS:
        return "credentials do not belong here; hpcflow takes them from ~/.aws or the like"
    return (
        "looks like a secret, and hpcflow would store it in scripts and journals; write the value "
        "to a file that only you can read, and name that file under environment.secrets"
    )


def _located_message(
    detail: ErrorDetails, model: type[BaseModel], document: Document
) -> tuple[Where, str]:
    path, about_key = _key_path(detail["loc"])
    if detail["type"] == "extra_forbidden":
        from hpcflow.documents.suggest import unknown_key

        return document.where(path), unknown_key(model, path)
    if about_key:
        message = _message(detail, None)
        return document.where(path), f"the key {shortened(str(path[-1]))}: {message}"
    path = _path_of(detail)
    got = _shown(path, detail["input"])
    hint = _hint(detail, model, document, path, is_shown=got is not _NOT_SHOWN)
    return document.where(path), redact(_message(detail, got) + hint)


def _path_of(detail: ErrorDetails) -> KeyPath:
    path, _ = _key_path(detail["loc"])
    cause = detail.get("ctx", {}).get("error")
    return path + tuple(getattr(cause, "keys", ()))


def _message(detail: ErrorDetails, got: str | None) -> str:
    """Return what is wrong with the value, or with the key if ``got`` is None."""
    context: dict[str, Any] = dict(detail.get("ctx", {}))
    if "error" in context:
        message = str(context["error"])
        of_parts = isinstance(detail["input"], (list, dict))
        return message if got is None or of_parts else f"{message}; got {got}"
    form = _MESSAGES.get(detail["type"])
    if form is None:
        return f"{detail['msg']}, got {got}"
    return form.format(got=got, **context)


def _hint(
    detail: ErrorDetails,
    model: type[BaseModel],
    document: Document,
    path: KeyPath,
    *,
    is_shown: bool,
) -> str:
    """Return how to write it: the value itself if only its type is wrong, else an example."""
    from hpcflow.documents.examples import example, written_right
    from hpcflow.documents.suggest import nearest

    kind, value = detail["type"], detail["input"]
    if kind in _CHOICES:
        choices = re.findall(r"'([^']*)'", str(detail["ctx"]["expected"]))
        near = nearest(value.lower(), choices) if is_shown and isinstance(value, str) else None
        return f"; did you mean {near!r}?" if near else ""
    if kind not in _OF_TYPE:
        return ""
    right = written_right(model, document, path) if kind != "missing" and is_shown else None
    if right is not None and isinstance(path[-1], int):
        return "; put it in quotes"
    line = right or example(model, path)
    return f"; write it like `{line}`" if line else ""


def _shown(path: KeyPath, value: Any) -> str:
    named = any(isinstance(key, str) and names_secret(key) for key in path)
    if named or (isinstance(value, str) and is_secret(value)):
        return _NOT_SHOWN
    return shown(value)


def _key_path(location: KeyPath) -> tuple[KeyPath, bool]:
    """Return the path in the document, and whether the key is wrong, not its value."""
    if location and location[-1] == "[key]":
        return location[:-1], True
    return location, False
