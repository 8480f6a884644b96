"""Build the program's arguments: ``command`` or ``script`` with ``args``, ``{{ … }}`` filled in.

``{{ … }}`` holds only names and dots. An unknown name, or anything else, raises SpecError. There
are no expressions, so there is nothing to escape from, and filled-in values are not parsed again.

``{{ resume.path }}`` is known only when the job starts. A word of ``resume_args`` with it is split
into parts, between which the job script inserts the path.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from hpcflow.errors import SpecError, Where
from hpcflow.model.run import Run

#: The prefix of a Python module in ``Run.code.files``.
MODULE: Final = "-m "
_PYTHON: Final = re.compile(r"python[0-9.]*")
#: Like ``python -m MODULE``, but with a given folder instead of the working directory.
_RUN_MODULE: Final = (
    "import sys; sys.path[:1] = [sys.argv.pop(1)] + [p for p in sys.path[:1] if p]; "
    "from runpy import run_module; "
    'sys.argv[:2] = sys.argv[1:2]; run_module(sys.argv[0], run_name="__main__", alter_sys=True)'
)
#: Number of names that are compared with an unknown one.
_COMPARED: Final = 200
_RESUME_PATH: Final = re.compile(r"\{\{\s*resume\.path\s*\}\}", re.ASCII)
_OPEN: Final = re.compile(r"\{\{\s*(?:params|run|resume)\.[A-Za-z0-9_.]+", re.ASCII)
_NAMES: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)\s*", re.ASCII)


def program_argv(run: Run) -> list[str]:
    """Return the words that execute ``run``'s program."""
    return _of_snapshot(program_words(run), run)


def program_words(run: Run) -> list[str]:
    """Return the same without the code snapshot: with the files as the config names them."""
    spec = run.spec
    program = [
        filled_in(word, run, f"command[{index}]") if spec.command is not None else word
        for index, word in enumerate(spec.program)
    ]
    return program + [
        filled_in(word, run, f"args[{index}]") for index, word in enumerate(spec.args)
    ]


def commands(run: Run, key: Literal["before", "after"]) -> tuple[tuple[str, ...], ...]:
    """Return the words of each command that an attempt runs before or after the program."""
    return tuple(tuple(_of_snapshot(words, run)) for words in command_words(run, key))


def command_words(run: Run, key: Literal["before", "after"]) -> list[list[str]]:
    """Return the same without the snapshot of the code."""
    given: list[list[str]] = getattr(run.spec, key)
    return [
        [filled_in(word, run, f"{key}[{index}][{place}]") for place, word in enumerate(words)]
        for index, words in enumerate(given)
    ]


def code_folder(run: Run) -> str:
    """Return the working directory in the code snapshot; without a snapshot, itself."""
    return run.working_dir if run.code is None else run.in_code(run.code.folder)


def _of_snapshot(words: list[str], run: Run) -> list[str]:
    """Replace the files of the program in ``words`` by those of the snapshot."""
    if run.code is None:
        return words
    files = {word: run.in_code(name) for word, name in run.code.files.items()}
    found: list[str] = []
    for index, word in enumerate(words):
        if f"{MODULE}{word}" in files and is_python_module(words, index):
            found[-1:] = ["-c", _RUN_MODULE, code_folder(run), word]
        else:  # FILE, FILE:FUNCTION, FOLDER:FOLDER
            found.append(":".join(files.get(part, part) for part in word.split(":")))
    return found


def is_python_module(words: Sequence[str], index: int) -> bool:
    """Return whether Python executes ``words[index]`` as a module: ``python -u -m MODULE``."""
    before = words[:index]
    is_python = bool(before) and _PYTHON.fullmatch(PurePosixPath(before[0]).name) is not None
    return is_python and before[-1] == "-m" and all(word.startswith("-") for word in before[1:])


def resume_argv(run: Run) -> list[tuple[str, ...]]:
    """Return the words to add if there is a checkpoint; its path goes between their parts."""
    return [
        tuple(
            filled_in(part, run, f"resume_args[{index}]") for part in _RESUME_PATH.split(str(word))
        )
        for index, word in enumerate(run.spec.resume_args)
    ]


def filled_in(text: str, run: Run, key: str) -> str:
    """Fill in the names in ``text``.

    Args:
        key: the key of the text in the config.
    """
    names = {
        "params": run.spec.params,
        "run": {
            "id": run.run_id,
            "name": run.spec.name,
            "dir": run.run_dir,
            "code": code_folder(run),
        },
    }
    return _fill_in(text, names, Where(file=run.provenance.config_path, key=key))


def _fill_in(word: str, names: Mapping[str, Any], where: Where) -> str:
    # Without a regular expression, which would take quadratic time for many `{{`.
    parts: list[str] = []
    position = 0
    while (begin := word.find("{{", position)) >= 0 and (end := word.find("}}", begin + 2)) >= 0:
        parts += word[position:begin], _look_up(word[begin + 2 : end], names, where)
        position = end + 2
    rest = word[position:]
    if is_open := _OPEN.search(rest):
        raise SpecError(
            f"{is_open[0]} is not closed",
            where=where,
            next_action=f"write {is_open[0]} }}}}",
        )
    return "".join((*parts, rest))


def _look_up(inside: str, names: Mapping[str, Any], where: Where) -> str:
    match = _NAMES.fullmatch(inside)
    if match is None:
        shown = inside.strip()
        raise SpecError(
            f"{{{{ {shown[:80]} }}}} is not a name: only names with dots are filled in",
            where=where,
            next_action="write {{ params.NAME }}; put text with braces into a parameter: values of "
            "parameters are not parsed",
        )
    if match[1] == "resume.path":
        raise SpecError(
            "{{ resume.path }} is only known in resume_args: at first there is no checkpoint",
            where=where,
            next_action='write it there: resume_args: ["--resume", "{{ resume.path }}"]',
        )
    value: Any = names
    path: list[str] = []
    for name in match[1].split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise _unknown(path, name, value, where, rest=match[1].split(".")[len(path) + 1 :])
        path.append(name)
        value = value[name]
    if path in (["params"], ["run"]):
        raise SpecError(
            f"{{{{ {path[0]} }}}} is a section; name one key in it",
            where=where,
            next_action=f"write one of: {', '.join(f'{path[0]}.{key}' for key in value)}"
            if value
            else "add `params` to the run first",
        )
    return as_text(value)


def _unknown(
    path: list[str], name: str, value: object, where: Where, *, rest: list[str]
) -> SpecError:
    """``rest`` is what follows ``name``."""
    full = ".".join([*path, name])
    known = [str(key) for key in value] if isinstance(value, Mapping) else []
    near = difflib.get_close_matches(name, known[:_COMPARED], n=1)
    if near:
        next_action = f"did you mean {{{{ {'.'.join([*path, near[0], *rest])} }}}}?"
    elif known:
        next_action = f"write one of: {', '.join(sorted(known)[:20])}"
    elif path == ["params"]:
        next_action = f"add `{name}` to the run's `params`"
    else:
        next_action = "remove what follows the last valid name"
    return SpecError(f"there is no {full}", where=where, next_action=next_action)


def as_text(value: object) -> str:
    """Return a text unchanged, other values as JSON: ``true``, ``0.001``, ``[1, 2]``, ``null``."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
