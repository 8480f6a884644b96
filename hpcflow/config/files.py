"""Check that the files that a spec names exist and are safe."""

from __future__ import annotations

import os
import stat
from typing import Final

from hpcflow.config.paths import relative
from hpcflow.documents import Document, KeyPath
from hpcflow.documents.examples import as_line
from hpcflow.errors import SpecError, shell_word
from hpcflow.model.scalars import printable, shortened
from hpcflow.model.spec import RunSpec

#: A shorter word is more likely the name of a file.
_LEAST_SECRET: Final = 16


def check_files(spec: RunSpec, document: Document) -> None:
    """Refuse a script or a secret that is missing, and a secret that others can read."""
    if spec.script is not None:
        _check_script(spec.script, document)
        _check_file(spec.script, document, ("script",))
    for variable, path in spec.environment.secrets.items():
        key_path = ("environment", "secrets", variable)
        _check_no_value(variable, path, document, key_path)
        mode = _check_file(path, document, key_path)
        if mode & 0o077:
            raise SpecError(
                f"other users have access to {printable(path)}",
                where=document.where(key_path),
                next_action=f"chmod 600 {shell_word(path)}",
            )


def _check_script(path: str, document: Document) -> None:
    """Refuse a command, or a script with arguments, in place of the name of a file."""
    folder, name = os.path.split(path)
    words = name.split()
    if len(words) < 2 or os.path.exists(path):  # noqa: PTH110 - Path raises for a long name
        return
    is_script = os.path.isfile(os.path.join(folder, words[0]))  # noqa: PTH113, PTH118 - as above
    raise SpecError(
        f"{shortened(name)} is not the name of a file"
        + (f", but {printable(words[0])} is" if is_script else ""),
        where=document.where(("script",)),
        next_action=f"write its arguments under `args`: `{as_line('args', words[1:])}`"
        if is_script
        else f"write a command with arguments as `command: {printable(name)}`",
    )


def _check_no_value(variable: str, path: str, document: Document, key_path: KeyPath) -> None:
    """Refuse the value of a secret in place of the name of its file. Do not print it."""
    name = os.path.basename(path)  # noqa: PTH119 - a path as text
    is_word = name.isalnum() and not name.isalpha() and len(name) >= _LEAST_SECRET
    if not is_word or os.path.exists(path):  # noqa: PTH110 - Path raises for a long name
        return
    raise SpecError(
        "names no file; is it the value itself? Then run.json would contain it",
        where=document.where(key_path),
        next_action=f"put the value into a file that only you can read: {variable}: "
        f"~/.secrets/{variable.lower()}",
    )


def _check_file(path: str, document: Document, key_path: KeyPath) -> int:
    """Return the mode of ``path``; refuse it unless this user can read it as a regular file."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a path as text
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "not a path"
        raise SpecError(
            f"{printable(path)}: {reason}",
            where=document.where(key_path),
            next_action=relative(path),
        ) from None
    if not stat.S_ISREG(mode):
        raise SpecError(
            f"{printable(path)} is not a file",
            where=document.where(key_path),
            next_action="name the file itself",
        )
    if not os.access(path, os.R_OK):
        raise SpecError(
            f"{printable(path)} cannot be read",
            where=document.where(key_path),
            next_action=f"chmod u+r {shell_word(path)}",
        )
    return mode
