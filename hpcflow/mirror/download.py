"""Objects -> files: many at once, large ones in ranges, checksums while they arrive.

Nothing is read twice: each range is hashed in its order when it was received, and written where it
belongs. What is in memory at any moment is bounded, whatever the sizes of the objects.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from hpcflow.errors import DamagedError
from hpcflow.mirror.remote import Remote
from hpcflow.runtime.checksum import Checksum
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE, storage_error

_RANGE_BYTES: Final = 8 << 20
#: Files at once, and ranges ahead of what is hashed in each: 8 x 4 x 8 MiB is the most in memory.
_FILES: Final = 8
_AHEAD: Final = 3
_REQUESTS: Final = 16


@dataclass(frozen=True)
class Wanted:
    """An object that is to become a new file.

    Attributes:
        name: in the store.
        path: where it goes; its folder is made, the file must not exist.
        size_bytes: as the manifest, or else the store, says.
        sha256: as the manifest says; None where nobody knows: then nothing is compared.
    """

    name: str
    path: Path
    size_bytes: int
    sha256: str | None = None


def download(
    remote: Remote, wanted: Iterable[Wanted], *, on_bytes: Callable[[int], object] | None = None
) -> None:
    """Fetch all of ``wanted``; each file is on the disk when this returns, its folders are not.

    Make it where nobody looks, then sync the folders and rename: files are incomplete while this
    runs, and stay so when it raises.

    Args:
        on_bytes: called with the number of bytes that were written since, by one thread at a time.

    Raises:
        DamagedError: an object has another size or checksum than it should.
        MissingObjectError: there is no such object.
        MirrorError: the store.
        StorageError: the disk.
    """
    # The largest first: one that begins last would keep all others waiting.
    todo = sorted(wanted, key=lambda each: -each.size_bytes)
    with (
        ThreadPoolExecutor(_REQUESTS, "range") as requests,
        ThreadPoolExecutor(_FILES, "file") as files,
    ):
        fetching = _Fetching(remote, requests, on_bytes or (lambda _: None))
        results = [files.submit(fetching.fetch, each) for each in todo]
        try:
            for result in results:
                result.result()
        except BaseException:
            fetching.stopped.set()
            for pool in (files, requests):
                pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Fetching:
    """What all files of one download share."""

    def __init__(
        self, remote: Remote, requests: ThreadPoolExecutor, on_bytes: Callable[[int], object]
    ) -> None:
        self._remote, self._requests, self._on_bytes = remote, requests, on_bytes
        self._telling = threading.Lock()
        self.stopped = threading.Event()

    def fetch(self, wanted: Wanted) -> None:
        """One file, unless somebody else failed meanwhile."""
        if self.stopped.is_set():
            return
        try:
            wanted.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(wanted.path, flags, FILE_MODE), "wb", buffering=0) as file:
                self._write(wanted, file)
                os.fsync(file.fileno())
        except OSError as error:
            raise storage_error("write", wanted.path, error) from error

    def _write(self, wanted: Wanted, file: BinaryIO) -> None:
        checksum, size_bytes = Checksum(wanted.sha256), 0
        for data in self._ranges(wanted):
            if self.stopped.is_set():
                return
            checksum.update(data)
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            size_bytes += len(data)
            with self._telling:
                self._on_bytes(len(data))
        url = self._remote.url_of(wanted.name)
        if size_bytes != wanted.size_bytes:
            raise DamagedError(f"{url} has {size_bytes} bytes or more, not {wanted.size_bytes}")
        if wanted.sha256 is not None and checksum.text() != wanted.sha256:
            raise DamagedError(f"{url} is not what was sent: its checksum differs")

    def _ranges(self, wanted: Wanted) -> Iterator[bytes]:
        """The object in order. One byte more is asked for than there should be: is it longer?"""
        size_bytes = wanted.size_bytes
        if size_bytes <= _RANGE_BYTES:
            yield self._remote.read_range(wanted.name, 0, size_bytes + 1)
            return
        ahead: deque[Future[bytes]] = deque()
        for begin in range(0, size_bytes, _RANGE_BYTES):
            is_last = begin + _RANGE_BYTES >= size_bytes
            stop = size_bytes + 1 if is_last else begin + _RANGE_BYTES
            ahead.append(self._requests.submit(self._remote.read_range, wanted.name, begin, stop))
            if len(ahead) > _AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
