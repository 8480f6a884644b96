"""The interface of one folder in an object store, for mirroring and restoring.

All that differs between stores is behind :class:`Remote`: S3 in
:mod:`hpcflow.mirror.s3_remote`, plain folders in :mod:`hpcflow.mirror.folder_remote`, other clouds
in :mod:`hpcflow.mirror.fsspec_remote`; all pass the same tests. An object appears as a whole or not
at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import MirrorError
from hpcflow.storage.files import write_durably

#: What is asked for with :meth:`Remote.read` is small: a spec, a manifest.
MAX_READ_BYTES: Final = 64 << 20
#: Of one listing: a million names.
_LISTED_BYTES: Final = 512 << 20
_ENTRY_BYTES: Final = 400
_PAGE_BYTES: Final = 64 << 10
#: What is in memory at once of what is streamed, where a store gives only whole ranges.
_STREAMED_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Options:
    """What a site says of its store, beside the URL. Credentials are never among it.

    Attributes:
        endpoint_url: of a store that speaks S3 and is not Amazon's; None for what the environment
            and ``~/.aws/config`` say.
        encryption: ``AES256`` or ``aws:kms``, done by the store; None for the bucket's default.
        kms_key: the key for ``aws:kms``; None for the account's default.
        storage_class: such as ``STANDARD_IA``; None for the bucket's default.
        shared: of a plain folder: its group may read what is put there, not its owner alone.
    """

    endpoint_url: str | None = None
    encryption: str | None = None
    kms_key: str | None = None
    storage_class: str | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What the store says of an object without sending it.

    Attributes:
        etag: changes when the content does; None where the store has no such thing.
        sha256: the checksum that was stored with it (:mod:`hpcflow.runtime.checksum`); None where
            there is none, or where only :meth:`Remote.stat` tells.
    """

    size_bytes: int
    etag: str | None = None
    sha256: str | None = None


class ListBudget:
    """Limits the memory of one listing: anybody who can write to a store can fill it with names.

    Args:
        url: what is listed, for the error.
    """

    def __init__(self, url: str) -> None:
        self._url, self._left_bytes = url, _LISTED_BYTES

    def add(self, name: str) -> None:
        """Count one name.

        Raises:
            MirrorError: there are too many.
        """
        self._take(len(name) + _ENTRY_BYTES)

    def add_page(self) -> None:
        """Count one answer of the store: without names in them, they could be endless, too."""
        self._take(_PAGE_BYTES)

    def _take(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise MirrorError(
                f"{self._url} has too many objects: hpcflow did not write them",
                next_action="see who did, and delete them",
            )


@dataclass(frozen=True)
class Part:
    """A part of an object that is still being sent, as the store has it."""

    number: int
    size_bytes: int
    etag: str


class Parts(ABC):
    """Objects that are sent in parts, which outlive the sending process. Parts count from 1."""

    @abstractmethod
    def begin(self, name: str, sha256: str | None = None) -> str:
        """Begin an object of parts; returns the id that the other calls take."""

    @abstractmethod
    def put(
        self,
        name: str,
        upload_id: str,
        number: int,
        data: bytes | bytearray,
        *,
        sha256: str | None = None,
    ) -> Part:
        """Send one part. All but the last have the same size, at least 5 MiB.

        Args:
            sha256: of ``data``, 64 hexadecimal digits, when it is known: then it need not be
                computed once more.
        """

    @abstractmethod
    def done(self, name: str, upload_id: str) -> dict[int, Part] | None:
        """The parts that the store has; None when it does not know this upload (any more)."""

    @abstractmethod
    def finish(self, name: str, upload_id: str, parts: Iterable[Part]) -> None:
        """Make the parts the object ``name``, all at once."""

    @abstractmethod
    def abort(self, name: str, upload_id: str) -> None:
        """Throw the parts away; nothing happens when they are gone already."""

    @abstractmethod
    def unfinished(self, prefix: str) -> list[tuple[str, str]]:
        """Name and upload id of all objects below ``prefix`` that somebody began to send."""


class Sink(ABC):
    """What takes the bytes of an object in their order.

    Attributes:
        at: which it wants next, counted from the object's begin.
    """

    at: int

    @abstractmethod
    def take(self, data: bytes) -> None:
        """The next ones, after which :attr:`at` has moved.

        What it raises is no OSError: that would be taken for the store's.
        """

    def require_wanted(self) -> None:
        """Asked before each request; raises where nobody wants the bytes any more."""
        return


class Remote(ABC):
    """A folder of a store. Names are relative to it, with ``/`` between their parts.

    One object may be used by several threads. Each call waits out what passes by itself (a
    connection refused, 500, 503) for ``patience_s``; then, and at once for everything else, it
    raises :class:`~hpcflow.errors.MirrorError`, which says what to do next.
    """

    #: Sending in parts; None where the store, or fsspec's view of it, has none.
    parts: Parts | None = None
    #: Whether it is a plain folder, which may lie in a file system that is not mounted.
    is_folder = False

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        #: Listed names that are not objects, such as links and pipes in a plain folder.
        self.left_out: set[str] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def url_of(self, name: str) -> str:
        """Where ``name`` lies, for people."""
        return f"{self.url}/{name}"

    def lacks_root(self) -> bool:
        """Whether this is a plain folder, and not there: not mounted, or not made yet.

        All but :meth:`make_root` raises :class:`~hpcflow.errors.MirrorUnavailable` then.
        """
        return False

    def make_root(self) -> None:
        """Make the folder itself, where that is a plain one: for a caller that knows that it is
        new.

        Raises:
            MirrorUnavailable: the folder that it is to lie in is not there either.
            MirrorError: it cannot be made.
        """
        return

    @abstractmethod
    def names(self, prefix: str = "") -> dict[str, Entry]:
        """All objects whose name begins with ``prefix``, at any depth, sorted by name.

        ``checkpoints/`` is those of a folder. Nothing there: empty.
        """

    @abstractmethod
    def folders(self, prefix: str = "") -> list[str]:
        """The folders right below the folder ``prefix`` (``""`` or ending in ``/``), sorted.

        One look at the store for up to a thousand of them, however much lies in them.
        """

    @abstractmethod
    def stat(self, name: str) -> Entry | None:
        """One object; None when it does not exist."""

    @abstractmethod
    def read_range(self, name: str, begin: int, end: int) -> bytes:
        """Bytes ``begin`` to ``end`` (exclusive) of an object; fewer where it ends before.

        Raises:
            MissingObjectError: it does not exist.
        """

    def stream(self, name: str, end: int, sink: Sink) -> None:
        """Hand ``sink`` the bytes from where it is to ``end`` (exclusive), fewer as for a range.

        Raises:
            MissingObjectError: it does not exist.
        """
        while sink.at < end:
            sink.require_wanted()
            # With one byte more, rather than ask for that alone: some stores refuse a range that
            # begins where the object ends.
            is_last = end - sink.at <= _STREAMED_BYTES + 1
            stop = end if is_last else sink.at + _STREAMED_BYTES
            data = self.read_range(name, sink.at, stop)
            is_all = sink.at + len(data) < stop
            sink.take(data)
            if is_all:
                return

    @abstractmethod
    def put_bytes(
        self, data: bytes | memoryview, name: str, *, sha256: str | None = None
    ) -> str | None:
        """Make ``data`` the object ``name``; returns its ETag where there is one.

        Args:
            sha256: of ``data``, when it is known; the store checks and keeps it where it can.
        """

    def put_stream(self, pieces: Iterator[bytes], name: str) -> None:
        """Make ``pieces`` one object; where they raise, there is none. For stores without parts."""
        self.put_bytes(b"".join(pieces), name)

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects; those that are gone already are no error."""

    def exists(self, name: str) -> bool:
        """Whether there is an object ``name``."""
        return self.stat(name) is not None

    def read(self, name: str, most_bytes: int = MAX_READ_BYTES) -> bytes:
        """All of a small object; of a large one nothing.

        Raises:
            MissingObjectError: it does not exist.
            MirrorError: it has more than ``most_bytes``.
        """
        data = self.read_range(name, 0, most_bytes + 1)
        if len(data) > most_bytes:
            raise MirrorError(
                f"{self.url_of(name)} is too large: hpcflow did not write it",
                next_action="see who wrote it there",
            )
        return data

    def get(self, name: str, path: Path) -> None:
        """Put a small object at ``path``, whole and on the disk, or leave ``path`` as it is.

        Large ones, with their checksums: :func:`hpcflow.mirror.download.download`.

        Raises:
            MissingObjectError: it does not exist.
            StorageError: it cannot be written here.
        """
        write_durably(path, self.read(name))

    def put(self, path: Path, name: str) -> str | None:
        """Send a small file as ``name``; returns its ETag where there is one.

        Large ones, with their checksums: :mod:`hpcflow.mirror.upload`.

        Raises:
            OSError: it cannot be read.
        """
        return self.put_bytes(path.read_bytes(), name)
