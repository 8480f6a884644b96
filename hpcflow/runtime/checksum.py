"""The checksum of a file: its SHA-256 or, if it is large, that of its pieces.

A file of up to 16 MiB has its SHA-256. A larger one has the SHA-256 of the SHA-256s, 32 bytes each,
of its pieces of 16 MiB, then ``-`` and how many they are: ``9f86d0…-640``. S3 calls a checksum that
is made like this a composite one. Several threads can compute it at once, and a part of an upload
is a piece, so what is sent is hashed once.

Manifests of older versions have the SHA-256 of large files, too: it has no ``-``, and is compared
as such.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from hpcflow.runtime.background import Background
from hpcflow.runtime.reading import open_file

PIECE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20
_FORM = re.compile(r"[0-9a-f]{64}(-[1-9][0-9]{0,8})?", re.ASCII)


class Each(Protocol):
    """``map``, or the like; what it is given can be gone through more than once."""

    def __call__(self, do: Callable[[Any], Any], items: Iterable[Any], /) -> Iterable[Any]: ...


class Checksum:
    """The checksum of bytes that come in their order.

    Args:
        like: what it will be compared with, so it is computed in the same way; what is no checksum
            decides nothing.
    """

    def __init__(self, like: object = None) -> None:
        self._is_whole = is_of_whole(like)
        self._pieces = [hashlib.sha256()]
        self._room = PIECE_BYTES

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """More bytes."""
        for piece, part in self._shared_out(data):
            piece.update(part)

    def add_piece(self, digest: Any) -> None:
        """More bytes, which hashlib has made ``digest`` of: a piece, or what is left for the last.

        Nothing but pieces may have come before.
        """
        if self._room == PIECE_BYTES:
            self._pieces.pop()
        self._pieces.append(digest)
        self._room = 0

    def begin(self, data: memoryview, threads: int) -> Hashing:
        """More bytes, hashed beside what this thread does: they must not change before its end."""
        return Hashing(self._shared_out(data), threads)

    def text(self) -> str:
        """Of all that came until now."""
        if len(self._pieces) == 1:
            return self._pieces[0].hexdigest()
        return _composite([piece.digest() for piece in self._pieces])

    def _shared_out(self, data: bytes | bytearray | memoryview) -> list[tuple[Any, memoryview]]:
        """Which of them belongs to the hash of which piece."""
        view, shares = memoryview(data), []
        if self._is_whole:
            return [(self._pieces[0], view)]
        while view:
            if not self._room:
                self._pieces.append(hashlib.sha256())
                self._room = PIECE_BYTES
            shares.append((self._pieces[-1], view[: self._room]))
            self._room -= len(shares[-1][1])
            view = view[len(shares[-1][1]) :]
        return shares


class Hashing:
    """What other threads compute; each piece by one of them."""

    def __init__(self, shares: Iterable[tuple[Any, memoryview]], threads: int) -> None:
        self._shares = deque(shares)
        helpers = [Background(self._hash) for _ in range(min(threads, len(self._shares)))]
        self._helpers = [helper for helper in helpers if helper.has_begun]

    def finish(self) -> str | None:
        """Return when all is hashed; says why, where it is not."""
        self._hash()  # what is left, for the threads may be few, or none
        return self._wait()

    def stop(self) -> None:
        """The checksum is not wanted any more."""
        self._shares.clear()
        self._wait()

    def _wait(self) -> str | None:
        for helper in self._helpers:
            helper.wait()
        return next((each.error for each in self._helpers if each.error is not None), None)

    def _hash(self) -> None:
        while True:
            try:
                piece, part = self._shares.popleft()
            except IndexError:
                return
            piece.update(part)  # other threads run meanwhile


def sha256_of(path: Path, like: object = None, each: Each = map) -> str:
    """Return the checksum of an own file; see :func:`sha256_of_open`.

    Raises:
        OSError: it cannot be read; an :class:`UnsafeFileError` where it must not be.
    """
    with open_file(path) as file:
        return sha256_of_open(file.fileno(), like, each)


def sha256_of_open(descriptor: int, like: object = None, each: Each = map) -> str:
    """The checksum of an open file, all of it.

    Args:
        like: what it will be compared with, so it is computed in the same way; what is no checksum
            decides nothing.
        each: what calls a function for each piece, such as the ``map`` of an executor.
    """
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes <= PIECE_BYTES or is_of_whole(like):
        return str(_hash_of(_chunks(descriptor, 0, size_bytes)).hexdigest())
    begins = range(0, size_bytes, PIECE_BYTES)
    return _composite(list(each(lambda begin: _piece_at(descriptor, begin), begins)))


def is_of_whole(said: object) -> bool:
    """Whether it is a SHA-256 of all, as large files have in older manifests, and small ones."""
    return is_checksum(said) and "-" not in str(said)


def is_of_pieces(said: object) -> bool:
    """Whether it is a checksum of pieces."""
    return is_checksum(said) and "-" in str(said)


def is_checksum(said: object) -> bool:
    """Whether it has the form of one."""
    return isinstance(said, str) and _FORM.fullmatch(said) is not None


def _piece_at(descriptor: int, begin: int) -> bytes:
    return bytes(_hash_of(_chunks(descriptor, begin, begin + PIECE_BYTES)).digest())


def _chunks(descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        chunk = os.pread(descriptor, min(_CHUNK_BYTES, end - begin), begin)
        if not chunk:
            return
        begin += len(chunk)
        yield chunk


def _hash_of(chunks: Iterable[bytes]) -> Any:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest


def _composite(digests: list[bytes]) -> str:
    return f"{hashlib.sha256(b''.join(digests)).hexdigest()}-{len(digests)}"
