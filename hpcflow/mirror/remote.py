"""The interface of one folder in an object store, for mirroring and restoring.

:class:`Remote` hides all differences between stores: S3 (:mod:`hpcflow.mirror.s3_remote`), plain
folders (:mod:`hpcflow.mirror.folder_remote`), other clouds (:mod:`hpcflow.mirror.fsspec_remote`).
All pass the same tests. An object appears as a whole or not at all.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import MirrorError, MirrorUnavailable

#: Limit of :meth:`Remote.read`, which is for small objects: a spec, a manifest.
MAX_READ_BYTES: Final = 64 << 20
#: Memory of one listing: a million names.
_LISTED_BYTES: Final = 512 << 20
_ENTRY_BYTES: Final = 400
_PAGE_BYTES: Final = 64 << 10
#: Bytes of a stream in memory at once, if a store returns only whole ranges.
_STREAMED_BYTES: Final = 8 << 20
#: Between two tries while a store is unavailable.
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Options:
    """Settings of a store, beside the URL; never credentials.

    Attributes:
        endpoint_url: of an S3 store other than Amazon's; None for the value of the environment or
            ``~/.aws/config``.
        encryption: ``AES256`` or ``aws:kms``, done by the store; None for the bucket's default.
        kms_key: the key for ``aws:kms``; None for the account's default.
        storage_class: such as ``STANDARD_IA``; None for the bucket's default.
        shared: for a plain folder: its group may read its files, too.
    """

    endpoint_url: str | None = None
    encryption: str | None = None
    kms_key: str | None = None
    storage_class: str | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """Metadata of an object.

    Attributes:
        etag: changes when the content does; None if the store has none.
        sha256: the checksum stored with it (:mod:`hpcflow.runtime.checksum`); None if there is
            none, or if the entry is not from :meth:`Remote.stat`.
    """

    size_bytes: int
    etag: str | None = None
    sha256: str | None = None


class ListBudget:
    """Limits the memory of one listing: other users can fill a store with names.

    Args:
        url: for the error.
    """

    def __init__(self, url: str) -> None:
        self._url, self._left_bytes = url, _LISTED_BYTES

    def add(self, name: str) -> None:
        """Count one name; raise MirrorError if the listing is too large."""
        self._take(len(name) + _ENTRY_BYTES)

    def add_page(self) -> None:
        """Count one page: a store could also send empty pages without end."""
        self._take(_PAGE_BYTES)

    def _take(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise MirrorError(
                f"{self._url} has too many objects, which hpcflow did not write",
                next_action="find out who wrote them, and delete them",
            )


@dataclass(frozen=True)
class Part:
    """A part of an unfinished upload, as the store has it."""

    number: int
    size_bytes: int
    etag: str


class Parts(ABC):
    """Multipart uploads; they outlive the process. Part numbers begin at 1."""

    @abstractmethod
    def begin(self, name: str, sha256: str | None = None) -> str:
        """Begin an upload; return its id."""

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
            sha256: of ``data``, 64 hexadecimal digits, if known, to not compute it again.
        """

    @abstractmethod
    def done(self, name: str, upload_id: str) -> dict[int, Part] | None:
        """Return the parts that the store has; None if it does not know this upload (any more)."""

    @abstractmethod
    def finish(self, name: str, upload_id: str, parts: Iterable[Part]) -> None:
        """Turn the parts into the object ``name``, atomically."""

    @abstractmethod
    def abort(self, name: str, upload_id: str) -> None:
        """Delete the parts; no error if the upload does not exist."""

    @abstractmethod
    def unfinished(self, prefix: str) -> list[tuple[str, str]]:
        """Return name and upload id of all unfinished uploads below ``prefix``."""


class Sink(ABC):
    """A consumer of the bytes of an object, in order.

    Attributes:
        at: offset in the object of the next byte.
    """

    at: int

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Consume ``data`` and advance :attr:`at`.

        It must not raise OSError, which would count as an error of the store.
        """

    def require_wanted(self) -> None:
        """Raise if the bytes are not needed any more; called before each request."""
        return


class Remote(ABC):
    """A folder of a store. Names are relative to it, with ``/`` between their parts.

    Several threads may use one object. Each call retries temporary errors (connection refused, 500,
    503) for ``patience_s``. After that, and at once for other errors, it raises
    :class:`~hpcflow.errors.MirrorError`.
    """

    #: Multipart uploads; None if the store or fsspec has none.
    parts: Parts | None = None
    #: Whether it is a plain folder, whose file system may not be mounted.
    is_folder = False

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        #: Listed names that are no objects, such as links and pipes in a plain folder.
        self.left_out: set[str] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def url_of(self, name: str) -> str:
        """Return the URL of ``name``, for messages."""
        return f"{self.url}/{name}"

    def lacks_root(self) -> bool:
        """Return whether this is a plain folder that does not exist: not mounted, or new.

        Then all methods but :meth:`make_root` raise :class:`~hpcflow.errors.MirrorUnavailable`.
        """
        return False

    def make_root(self) -> None:
        """Make a plain folder. The caller must know that it is new.

        Raises:
            MirrorUnavailable: its parent does not exist either.
        """
        return

    @abstractmethod
    def names(self, prefix: str = "") -> dict[str, Entry]:
        """Return all objects whose name begins with ``prefix``, at any depth, sorted by name."""

    @abstractmethod
    def folders(self, prefix: str = "") -> list[str]:
        """Return the folders directly below ``prefix`` (``""`` or ending in ``/``), sorted.

        One request returns up to a thousand, whatever they contain.
        """

    @abstractmethod
    def stat(self, name: str) -> Entry | None:
        """Return the metadata of one object; None if it does not exist."""

    @abstractmethod
    def read_range(self, name: str, begin: int, end: int) -> bytes:
        """Return bytes ``begin`` to ``end`` (exclusive) of an object; fewer if it ends before.

        Raises:
            MissingObjectError: it does not exist.
        """

    def stream(self, name: str, end: int, sink: Sink) -> None:
        """Pass ``sink`` the bytes from its offset to ``end`` (exclusive); fewer as for a range.

        Raises:
            MissingObjectError: it does not exist.
        """
        while sink.at < end:
            sink.require_wanted()
            # Include a single last byte, because some stores refuse a range that begins where the
            # object ends.
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
        """Write ``data`` to the object ``name``; return its ETag, if any.

        Args:
            sha256: of ``data``, if known; the store checks and keeps it if it can.
        """

    def put_stream(self, pieces: Iterator[bytes], name: str) -> None:
        """Write ``pieces`` as one object; no object if they raise. For stores without parts."""
        self.put_bytes(b"".join(pieces), name)

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects; missing ones are no error."""

    def exists(self, name: str) -> bool:
        return self.stat(name) is not None

    def read(self, name: str, most_bytes: int = MAX_READ_BYTES) -> bytes:
        """Read a small object.

        Raises:
            MissingObjectError: it does not exist.
            MirrorError: it has more than ``most_bytes``.
        """
        data = self.read_range(name, 0, most_bytes + 1)
        if len(data) > most_bytes:
            raise MirrorError(
                f"{self.url_of(name)} is too large: hpcflow did not write it",
                next_action="find out who wrote it",
            )
        return data


def with_retries(call: Callable[[], _T], *, clock: Clock, patience_s: float) -> _T:
    """Return ``call()``; retry with growing waits while the store is unavailable.

    Half of each wait is random, so that many clients of one server do not retry together.

    Raises:
        MirrorUnavailable: the store is still unavailable after ``patience_s``.
    """
    deadline_s = clock.monotonic() + patience_s
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            return call()
        except MirrorUnavailable:  # noqa: PERF203 - a retry
            left_s = deadline_s - clock.monotonic()
            if left_s <= 0:
                raise
            clock.sleep(min(left_s, wait_s * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
            wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)
