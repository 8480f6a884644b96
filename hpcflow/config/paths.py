"""Make the paths of a spec absolute; each is relative to the file that it is written in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hpcflow.documents import Document
from hpcflow.documents.suggest import nearest_file
from hpcflow.model.start import is_path

_RELATIVE: Final = "a path is relative to the file that contains it"
_IMAGE_FILES: Final = (".sif", ".sqsh", ".simg")


def absolute(path: str, base: Path) -> Path:
    """Return ``path`` as an absolute path, resolved against ``base``; ``~`` is the user's home."""
    full = base.absolute() / os.path.expanduser(path)  # noqa: PTH111 - Path raises for ~nobody
    # With `..` after a symbolic link, only the kernel's resolution is right.
    return Path(os.path.realpath(full)) if ".." in full.parts else full


def relative(path: str, base: Path | None = None) -> str:
    """Return the next action for a missing file, with the file that was probably meant, if any."""
    near = nearest_file(str(path if base is None else absolute(path, base)))
    return f"did you mean {near!r}? {_RELATIVE}" if near else f"{_RELATIVE}; correct it"


def with_absolute_paths(document: Document, base: Path) -> Document:
    """Return ``document`` with absolute paths, resolved against ``base``.

    Values of the wrong type stay unchanged: the validation reports them.
    """

    def full(path: str) -> str:
        return str(absolute(path, base))

    data = dict(document.data)
    _change(data, ("script",), full)
    _change(data, ("start_from",), lambda text: full(text) if is_path(text) else text)
    _change(data, ("environment", "venv"), full)
    _change(data, ("environment", "conda"), lambda path: full(path) if "/" in path else path)
    _change(
        data,
        ("environment", "container", "image"),
        lambda image: full(image) if is_image_file(image) else image,
    )
    _change(data, ("environment", "container", "mounts", "*"), lambda mount: _mount(mount, full))
    _change(data, ("environment", "secrets", "*"), full)
    return Document(document.path, data, document.place)


def is_image_file(image: str) -> bool:
    """Return whether a container image is a file, not the name of one in a registry."""
    is_path = image.startswith(("/", "./", "../", "~"))
    return is_path or ("://" not in image and image.endswith(_IMAGE_FILES))


def _mount(mount: str, full: Callable[[str], str]) -> str:
    source, colon, rest = mount.partition(":")
    return f"{full(source)}:{rest}" if colon and source else mount


def _change(data: dict[str, Any], path: tuple[str, ...], change: Callable[[str], str]) -> None:
    """Replace the texts at ``path``, copying the mappings on the way; ``*`` is every one."""
    key, rest = path[0], path[1:]
    keys = list(data) if key == "*" else [key] if key in data else []
    for name in keys:
        value = data[name]
        if isinstance(value, str):
            if not rest and value and "\0" not in value and not value.startswith("-"):
                data[name] = change(value)
        elif rest and isinstance(value, dict):
            data[name] = dict(value)
            _change(data[name], rest, change)
        elif rest == ("*",) and isinstance(value, list):
            data[name] = [
                change(item) if isinstance(item, str) and item else item for item in value
            ]
