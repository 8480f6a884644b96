"""Read a file that may be missing, a FIFO, a gigabyte, or not text."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from hpcflow.errors import InputError, Where, shell_word
from hpcflow.model.scalars import printable
from hpcflow.runtime.reading import read_file

MAX_FILE_BYTES: Final = 1 << 20


def read_text(path: Path, error: type[InputError]) -> str:
    """Return the content of ``path``, as UTF-8 without a byte order mark.

    Raises:
        InputError: of the class ``error``: it is not a file, cannot be read, is too large, or is
            not text.
    """
    file = printable(str(path))
    data = _read_bytes(path, file, error)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error(
            "not UTF-8 text",
            where=Where(file=file, line=line),
            next_action="save it as UTF-8, or give another file; see its type: "
            f"file {shell_word(path)}",
        ) from None


def _look(path: Path) -> str:
    """Return what to type if there is no file ``path``."""
    from hpcflow.documents.suggest import nearest_file

    near = nearest_file(str(path))
    if near is not None:
        return f"did you mean {shell_word(path.with_name(near))}?"
    return f"see what is there: ls -l {shell_word(path.parent)}"


def _read_bytes(path: Path, file: str, error: type[InputError]) -> bytes:
    where, look = Where(file=file), f"look at it: ls -l {shell_word(path)}"
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if path.is_dir() else "neither a file nor a folder"
            raise error(f"this is {kind}", where=where, next_action="give a YAML file")
        if status.st_size <= MAX_FILE_BYTES:
            return read_file(path, MAX_FILE_BYTES, follow=True, any_owner=True)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = getattr(problem, "strerror", None) or "not a path"
        raise error(
            f"cannot be read: {reason}",
            where=where,
            next_action=_look(path) if isinstance(problem, FileNotFoundError) else look,
        ) from None
    raise error(
        f"larger than {MAX_FILE_BYTES >> 20} MiB, the limit for such a file",
        where=where,
        next_action="give a YAML file; put data into another file",
    )
