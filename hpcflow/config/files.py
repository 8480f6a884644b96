"""The files that a spec names: whether they are there, and whether they are safe."""

from __future__ import annotations

import os
import stat

from hpcflow.documents import Document, KeyPath
from hpcflow.errors import SpecError, shell_word
from hpcflow.model.scalars import printable
from hpcflow.model.spec import RunSpec


def check_files(spec: RunSpec, document: Document) -> None:
    """Refuse a script or a secret that is missing, and a secret that others can read.

    Raises:
        SpecError: with the line that names the file.
    """
    if spec.script is not None:
        _check_file(spec.script, document, ("script",))
    for variable, path in spec.environment.secrets.items():
        key_path = ("environment", "secrets", variable)
        mode = _check_file(path, document, key_path)
        if mode & 0o077:
            raise SpecError(
                f"others can get at {printable(path)}",
                where=document.where(key_path),
                next_action=f"chmod 600 {shell_word(path)}",
            )


def _check_file(path: str, document: Document, key_path: KeyPath) -> int:
    """The mode of the regular file ``path``, which this user can read."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a path as text
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "not a path"
        raise SpecError(
            f"{printable(path)}: {reason}",
            where=document.where(key_path),
            next_action="a path is relative to the file in which it stands; correct it",
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
