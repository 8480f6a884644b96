"""Suggest a key for one that a pydantic model does not have."""

from __future__ import annotations

import difflib
import os
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

from hpcflow.documents.document import KeyPath, dotted
from hpcflow.model.scalars import shortened

if TYPE_CHECKING:
    from pydantic import BaseModel

_MIN_PREFIX_CHARS: Final = 3
#: In a folder with more files, only the first are compared.
_COMPARED: Final = 1000
_MIN_SHARED: Final = 0.5
#: Name of a key in Slurm, other schedulers and other tools -> the keys that may be meant.
_ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("time", "walltime"), ("time_limit",)),
    "gpus": ("gpus_per_node",),
    "queue": ("partition",),
    "gres": ("gpus_per_node",),
    "ntasks": ("tasks_per_node",),
    "cpus_per_node": ("cpus_per_task",),
    "entrypoint": ("script",),
    "hyperparameters": ("params",),
    "parameters": ("params", "space"),
    "method": ("sampler",),
    "name": ("type",),
    **dict.fromkeys(("env", "env_vars", "environ"), ("variables",)),
    "description": ("tags",),
    "requeue": ("retry",),
    "retries": ("retry",),
    "max_retries": ("failures",),
    "resume_from": ("start_from",),
    "checkpoint_path": ("start_from",),
    **dict.fromkeys(("save_every", "save_steps", "save_interval"), ("every_train_steps",)),
}
#: Common options of sbatch for which hpcflow has no key.
_OF_SBATCH: Final = frozenset({
    "comment", "exclusive", "licenses", "mail_type", "mail_user", "nodelist", "reservation",
    "switches",
})  # fmt: skip
#: What other tools call the option --site, which no config can set.
_SITE: Final = frozenset({"site", "cluster"})


def unknown_key(model: type[BaseModel], path: KeyPath) -> str:
    """Return the message about the unknown key at ``path`` of a document of type ``model``."""
    key = str(path[-1])
    message = f"unknown key {shortened(key)}"
    section = section_at(model, path[:-1])
    if section is None or len(key) > 100:
        return message
    elsewhere = dict(_all_keys(model))
    known = keys_of(section)
    plain = key.replace("-", "_").lower()
    if "sbatch" in known and plain in _OF_SBATCH:
        return f"{message}; for an option of sbatch, use 'sbatch.{plain.replace('_', '-')}'"
    meant = _ELSEWHERE.get(plain, ())
    for each in (plain, *meant):
        if each in known:
            return f"{message}; did you mean {each!r}?"
    if plain in elsewhere:
        return f"{message} here; {_belongs(plain, elsewhere[plain])}"
    # If a word only resembles a key of another section, it is probably a value for the program.
    near = (
        next((each for each in meant if each in elsewhere), None)
        or nearest(plain, known)
        or nearest(plain, list(elsewhere), is_sure=True)
    )
    if near:
        belongs = "" if near in known else f" {_belongs(near, elsewhere[near])}"
        return f"{message}; did you mean {near!r}?{belongs}"
    if len(path) == 1 and "params" in known:
        if plain in _SITE:
            return f"{message}; choose the cluster on the command line: --site NAME"
        message = f"{message}; for a parameter of your program, use 'params.{plain}'"
    return f"{message}; known keys: {', '.join(known)}"


def place_of(model: type[BaseModel], key: str) -> str | None:
    """Return the dotted path of the key of this name, in any section; None if there is none."""
    keys = dict(_all_keys(model))
    found = next((each for each in (key, *_ELSEWHERE.get(key, ())) if each in keys), None)
    return None if found is None else dotted((*keys[found], found))


def nearest(word: str, known: list[str], *, is_sure: bool = False) -> str | None:
    """Return the one of ``known`` that ``word`` probably means; None if none is similar.

    Args:
        is_sure: accept only a very similar one.
    """
    if near := difflib.get_close_matches(word, known, n=1, cutoff=0.7):
        return near[0]
    if is_sure:
        return None
    for name in known:
        short, long = sorted((word, name), key=len)
        if len(short) >= _MIN_PREFIX_CHARS and long.startswith(short):
            return name
    most = max(known, key=lambda name: _shared(word, name), default="")
    return most if _shared(word, most) >= _MIN_SHARED else None


def _shared(one: str, other: str) -> float:
    """Return the share of words that two names have in common: ``cost_usd`` and ``usd`` 0.5."""
    mine, yours = set(one.split("_")), set(other.split("_"))
    return len(mine & yours) / len(mine | yours)


def nearest_file(path: str) -> str | None:
    """Return the file beside ``path`` that was probably meant; None if none is similar."""
    folder, name = os.path.split(path)
    try:
        there = sorted(each.name for each in os.scandir(folder or ".") if each.is_file())
    except (OSError, ValueError):
        return None
    return nearest(name, there[:_COMPARED])


def keys_of(section: type[BaseModel]) -> list[str]:
    """Return the keys that the YAML may have."""
    return [field.alias or name for name, field in section.model_fields.items()]


def submodels(annotation: Any) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Yield the models inside a type, each with the steps to it: ``item`` or ``value``."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield (), annotation
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from submodels(arguments[0])
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            yield from submodels(argument)
    elif origin is list:
        for steps, found in submodels(arguments[0]):
            yield ("item", *steps), found
    elif origin is dict:
        for steps, found in submodels(arguments[1]):
            yield ("value", *steps), found


def section_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    rest = list(path)
    while rest:
        key = rest.pop(0)
        by_key = {field.alias or name: field for name, field in model.model_fields.items()}
        if key not in by_key:
            return None
        found = next(submodels(by_key[str(key)].annotation), None)
        if found is None or len(rest) < len(found[0]):
            return None
        del rest[: len(found[0])]
        model = found[1]
    return model


def _all_keys(model: type[BaseModel], path: KeyPath = ()) -> Iterator[tuple[str, KeyPath]]:
    """Yield every key of the model and of its sections, with the section that it belongs to."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        for steps, section in submodels(field.annotation):
            if not steps:
                yield from _all_keys(section, (*path, key))
        yield key, path


def _belongs(key: str, section: KeyPath) -> str:
    return (
        f"{key!r} belongs under {dotted(section)!r}" if section else f"{key!r} belongs at the top"
    )
