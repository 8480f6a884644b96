"""Compute the checksum of a file: its SHA-256 or, for a large file, a composite one.

A file of up to 16 MiB has its SHA-256. A larger one has the SHA-256 of the SHA-256s, 32 bytes each,
of its pieces of 16 MiB, then ``-`` and their number: ``9f86d0…-640``. S3 calls this a composite
checksum. Several threads can compute it at once, and a part of an upload is a piece, so data that
is sent is hashed once.

Manifests of older versions have the plain SHA-256 of large files, too, without a ``-``.
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
    """``map`` or a similar function; ``items`` can be iterated more than once."""

    def __call__(self, do: Callable[[Any], Any], items: Iterable[Any], /) -> Iterable[Any]: ...


class Checksum:
    """The checksum of bytes that are added in order.

    Args:
        like: the checksum to compare with; it sets the kind, plain or composite. Other values are
            ignored.
    """

    def __init__(self, like: object = None) -> None:
        self._is_whole = is_of_whole(like)
        self._pieces = [hashlib.sha256()]
        self._room = PIECE_BYTES

    def update(self, data: bytes | bytearray | memoryview) -> None:
        for piece, part in self._shared_out(data):
            piece.update(part)

    def add_piece(self, digest: Any) -> None:
        """Add a piece by its hashlib object: 16 MiB, or less for the last one.

        Only pieces may have been added before.
        """
        if self._room == PIECE_BYTES:
            self._pieces.pop()
        self._pieces.append(digest)
        self._room = 0

    def begin(self, data: memoryview, threads: int) -> Hashing:
        """Add bytes, hashed by other threads; they must not change until that has ended."""
        return Hashing(self._shared_out(data), threads)

    def text(self) -> str:
        """Return the checksum of all bytes added so far."""
        if len(self._pieces) == 1:
            return self._pieces[0].hexdigest()
        return _composite([piece.digest() for piece in self._pieces])

    def _shared_out(self, data: bytes | bytearray | memoryview) -> list[tuple[Any, memoryview]]:
        """Split the data by piece: yield each piece's hash, and its part of the data."""
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
    """Hashing by other threads, each piece by one of them."""

    def __init__(self, shares: Iterable[tuple[Any, memoryview]], threads: int) -> None:
        self._shares = deque(shares)
        helpers = [Background(self._hash) for _ in range(min(threads, len(self._shares)))]
        self._helpers = [helper for helper in helpers if helper.has_begun]

    def finish(self) -> str | None:
        """Wait until all is hashed; return an error, if there is one."""
        self._hash()  # this thread helps; there may be no others
        return self._wait()

    def stop(self) -> None:
        """Stop without a result."""
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
            piece.update(part)  # releases the GIL


def sha256_of(path: Path, like: object = None, each: Each = map) -> str:
    """Return the checksum of a file of this user; see :func:`sha256_of_open`.

    Raises:
        OSError: the file cannot be read; an :class:`UnsafeFileError` if it is unsafe.
    """
    with open_file(path) as file:
        return sha256_of_open(file.fileno(), like, each)


def sha256_of_open(descriptor: int, like: object = None, each: Each = map) -> str:
    """Return the checksum of an open file.

    Args:
        like: as for :class:`Checksum`.
        each: calls a function for each piece, such as the ``map`` of an executor.
    """
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes <= PIECE_BYTES or is_of_whole(like):
        return str(_hash_of(_chunks(descriptor, 0, size_bytes)).hexdigest())
    begins = range(0, size_bytes, PIECE_BYTES)
    return _composite(list(each(lambda begin: _piece_at(descriptor, begin), begins)))


def is_of_whole(text: object) -> bool:
    """Return whether ``text`` is a plain SHA-256."""
    return is_checksum(text) and "-" not in str(text)


def is_of_pieces(text: object) -> bool:
    """Return whether ``text`` is a composite checksum."""
    return is_checksum(text) and "-" in str(text)


def is_checksum(text: object) -> bool:
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


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
