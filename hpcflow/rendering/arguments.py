"""The program's words: ``command`` or ``script`` with ``args``, their ``{{ … }}`` filled in.

So are those of its environment variables. A word may hold ``{{ params.NAME }}`` (and below a
mapping ``{{ params.NAME.KEY }}``), ``{{ run.id }}``, ``{{ run.name }}``, ``{{ run.dir }}`` and
``{{ run.code }}``: names and dots, nothing else. There are no expressions, so there is nothing to
escape from, and what is filled in is not looked at again.

``{{ resume.path }}`` is known to nobody before the job has started. A word of ``resume_args`` that
holds it comes in parts, between which the job script puts the path.
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

#: Begins a word in ``Run.code.files`` that is the name of a Python module.
MODULE: Final = "-m "
_PYTHON: Final = re.compile(r"python[0-9.]*")
#: What ``python -m MODULE`` does, but with a folder that is given instead of the working directory.
_RUN_MODULE: Final = (
    "import sys; sys.path[:1] = [sys.argv.pop(1)] + [p for p in sys.path[:1] if p]; "
    "from runpy import run_module; "
    'sys.argv[:2] = sys.argv[1:2]; run_module(sys.argv[0], run_name="__main__", alter_sys=True)'
)
#: Of very many names, only the first are compared with one that is not there.
_COMPARED: Final = 200
_RESUME_PATH: Final = re.compile(r"\{\{\s*resume\.path\s*\}\}", re.ASCII)
_OPEN: Final = re.compile(r"\{\{\s*(?:params|run|resume)\.[A-Za-z0-9_.]+", re.ASCII)
_NAMES: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)\s*", re.ASCII)


def program_argv(run: Run) -> list[str]:
    """The words that execute ``run``'s program.

    Raises:
        SpecError: a word asks for a name that does not exist, or for more than a name.
    """
    return _of_snapshot(program_words(run), run)


def program_words(run: Run) -> list[str]:
    """The same without the snapshot of its code: the files as the config names them.

    Raises:
        SpecError: as for :func:`program_argv`.
    """
    spec = run.spec
    program = [
        filled_in(word, run, f"command[{index}]") if spec.command is not None else word
        for index, word in enumerate(spec.program)
    ]
    return program + [
        filled_in(word, run, f"args[{index}]") for index, word in enumerate(spec.args)
    ]


def commands(run: Run, key: Literal["before", "after"]) -> tuple[tuple[str, ...], ...]:
    """Return the words of each command that an attempt runs before or after the program.

    Raises:
        SpecError: as for :func:`program_argv`.
    """
    return tuple(tuple(_of_snapshot(words, run)) for words in command_words(run, key))


def command_words(run: Run, key: Literal["before", "after"]) -> list[list[str]]:
    """Return the same without the snapshot of the code."""
    given: list[list[str]] = getattr(run.spec, key)
    return [
        [filled_in(word, run, f"{key}[{index}][{place}]") for place, word in enumerate(words)]
        for index, words in enumerate(given)
    ]


def code_folder(run: Run) -> str:
    """The working directory as the code snapshot has it; without one, the directory itself."""
    return run.working_dir if run.code is None else run.in_code(run.code.folder)


def _of_snapshot(words: list[str], run: Run) -> list[str]:
    """``words`` with the files of the program as the snapshot has them."""
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
    """Whether Python executes ``words[index]`` as a module: ``python -u -m MODULE``."""
    before = words[:index]
    is_python = bool(before) and _PYTHON.fullmatch(PurePosixPath(before[0]).name) is not None
    return is_python and before[-1] == "-m" and all(word.startswith("-") for word in before[1:])


def resume_argv(run: Run) -> list[tuple[str, ...]]:
    """The words that follow when there is a checkpoint; its path belongs between their parts.

    Raises:
        SpecError: as for :func:`program_argv`.
    """
    return [
        tuple(
            filled_in(part, run, f"resume_args[{index}]") for part in _RESUME_PATH.split(str(word))
        )
        for index, word in enumerate(run.spec.resume_args)
    ]


def filled_in(text: str, run: Run, key: str) -> str:
    """``text`` with the names in it filled in.

    Args:
        key: where it stands in the config.

    Raises:
        SpecError: as for :func:`program_argv`.
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
    # Not with a regular expression, which would look for an end from each of many beginnings.
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
            next_action="write {{ params.NAME }}; a text that itself holds braces can be a "
            "parameter, for what is filled in is not looked at again",
        )
    if match[1] == "resume.path":
        raise SpecError(
            "{{ resume.path }} is known in resume_args alone: at first there is no checkpoint",
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
            f"{{{{ {path[0]} }}}} is all of them; one is meant",
            where=where,
            next_action=f"write one of: {', '.join(f'{path[0]}.{key}' for key in value)}"
            if value
            else "give the run `params` first",
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
        next_action = f"there is: {', '.join(sorted(known)[:20])}"
    elif path == ["params"]:
        next_action = f"add `{name}` to the run's `params`"
    else:
        next_action = "take away what follows the last good name"
    return SpecError(f"there is no {full}", where=where, next_action=next_action)


def as_text(value: object) -> str:
    """A text as it is; the rest as JSON writes it: ``true``, ``0.001``, ``[1, 2]``, ``null``."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
