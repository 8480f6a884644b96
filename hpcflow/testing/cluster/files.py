"""Small files that must be whole or absent: JSON records, secrets, configurations."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``path`` in one step; it never has other permissions than ``mode``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w") as out:
        os.fchmod(out.fileno(), mode)
        out.write(text)
    temporary.replace(path)


def write_if_changed(path: Path, text: str, mode: int = 0o644) -> bool:
    """Write ``path`` unless it has ``text`` already; return whether it was written."""
    if path.exists() and path.read_text() == text:
        return False
    write_atomic(path, text, mode)
    return True


def read_json(path: Path) -> dict[str, Any]:
    """Return the record in ``path``; empty if it is missing or torn."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomic(path, json.dumps(value, indent=1) + "\n", 0o600)


def make_directory(path: Path, mode: int = 0o755, owner: tuple[int, int] | None = None) -> Path:
    """Create ``path`` with exactly this mode and owner, independent of the umask."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    if owner is not None:
        os.chown(path, *owner)
    return path


def last_lines(path: Path, count: int = 12) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        return f"(no log: {error.strerror})"
    return "\n".join(f"    {line}" for line in text.splitlines()[-count:]) or "    (empty)"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Run the block in one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
