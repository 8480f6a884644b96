"""Checkpoints of very many files under any names, or of one very large one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: So many files; as many as a program writes are for `make soak`.
MANY = [1000, pytest.param(10_000, marks=pytest.mark.soak)]

#: A number that 32 bits do not hold, and one that 31 bits do not, for what takes room on a disk.
BEYOND_4_GIB, BEYOND_2_GIB = (4 << 30) + 1, (2 << 30) + 1

#: As people and programs name files; the last is no text in any encoding.
NAMES = ("epoch 1", "schwarz-weiß 💩", "it's $(touch owned)\n", os.fsdecode(b"\xff"), "-rf", "#?*[")


def write_many(folder: Path, count: int = 10_000) -> None:
    """Write so many small files of 0, 1, 2 … bytes, in folders."""
    for number in range(count):
        below = folder / f"{NAMES[number % len(NAMES)]}.{number % 100}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number} {NAMES[number % len(NAMES)]}").write_bytes(bytes(number % 1000))


def sizes_of(folder: Path) -> dict[str, int]:
    """Size in bytes of every file below ``folder``."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def write_large(path: Path, size_bytes: int) -> None:
    """Write a file that takes hardly any room: zeros, and a byte at its end."""
    with path.open("wb") as file:
        file.truncate(size_bytes - 1)
        file.seek(0, os.SEEK_END)
        file.write(b"!")


def end_of(path: Path) -> tuple[int, bytes]:
    """Size in bytes of a file, and its last byte."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return path.stat().st_size, file.read()
