"""A disk that takes nothing more from one write on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpcflow.storage import files


@contextmanager
def full_from(
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    code: int = errno.ENOSPC,
    is_torn: bool = True,
) -> Iterator[list[int]]:
    """Fail the ``number``-th write and all later ones; yields a list of how many there were.

    Args:
        is_torn: whether half of the bytes of the first one that fails are written.
    """
    write, writes = files.write_all, [0]

    def full(descriptor: int, data: bytes) -> None:
        writes[0] += 1
        if writes[0] < number:
            write(descriptor, data)
            return
        if writes[0] == number and is_torn:
            os.write(descriptor, data[: len(data) // 2])
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", full)
        yield writes
