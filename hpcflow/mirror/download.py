"""Download objects to files: in parallel, large ones in ranges, checksums computed on arrival.

Data is hashed and written as it arrives, while the CPU's cache has it. So nothing is read twice,
and little memory is used for all sizes. A request that breaks off is continued where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from hpcflow.errors import DamagedError
from hpcflow.mirror.remote import Remote, Sink
from hpcflow.runtime.checksum import PIECE_BYTES, Checksum, is_of_whole, sha256_of_open
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE

#: Size of one request: whole pieces, each with its own checksum.
_SPAN_BYTES: Final = 4 * PIECE_BYTES
_REQUESTS: Final = 16
#: Progress is reported each time this many bytes are written.
_REPORT_BYTES: Final = 8 << 20
#: Large files downloaded at once: threads that write to one file wait for each other, and one file
#: can be synced while the last spans of another arrive.
_FILES: Final = 4


@dataclass(frozen=True)
class Wanted:
    """An object to download.

    Attributes:
        name: in the store.
        path: of the new file; its folder is made, the file must not exist.
        size_bytes: from the manifest, or else the store.
        sha256: from the manifest; None to not compare.
    """

    name: str
    path: Path
    size_bytes: int
    sha256: str | None = None


def download(
    remote: Remote, wanted: Iterable[Wanted], *, on_bytes: Callable[[int], object] | None = None
) -> None:
    """Download all of ``wanted``; each file is synced when this returns, its folders are not.

    Use a temporary folder, then sync and rename it: files are incomplete while this runs, and if it
    raises.

    Args:
        on_bytes: called with the number of bytes written since the last call, by one thread at a
            time.

    Raises:
        DamagedError: the size or checksum of an object differs.
        MissingObjectError: an object does not exist.
    """
    # The largest first, because all would wait for one that begins last.
    files = [_File(remote, each) for each in sorted(wanted, key=lambda each: -each.size_bytes)]
    fetching = _Fetching(remote, files, on_bytes or (lambda _: None))
    workers: list[Future[None]] = []
    try:
        with ThreadPoolExecutor(_REQUESTS, "fetch") as threads:
            try:
                workers += [threads.submit(fetching.work) for _ in range(_REQUESTS)]
                wait(workers)
            finally:
                fetching.stop()  # if this thread was interrupted
    finally:
        # After a second interrupt, threads may still write: keep their descriptors open.
        if all(worker.done() for worker in workers):
            for file in files:
                file.give_up()
    fetching.require_all()


class _File:
    """A file that is being downloaded; several threads write, each a span.

    Attributes:
        spans: number of spans; an empty file has one.
        begun: number of spans that were begun.
        writing: number of threads that write it.
        is_answered: whether the first data has arrived.
        is_done: whether it is verified and synced.
    """

    def __init__(self, remote: Remote, wanted: Wanted) -> None:
        self.wanted, self.url = wanted, remote.url_of(wanted.name)
        self.spans = max(1, -(-wanted.size_bytes // _SPAN_BYTES))
        self.begun = self.writing = 0
        self.is_answered = self.is_done = False
        # A large file of an older manifest has a checksum of the whole, not of pieces.
        self.hashes_pieces = wanted.sha256 is not None and not (
            wanted.size_bytes > PIECE_BYTES and is_of_whole(wanted.sha256)
        )
        self._digests: dict[int, list[Any]] = {}
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    def open(self) -> int:
        """Return its descriptor; the first call creates the file."""
        with self._lock:
            if self._descriptor is None:
                path = self.wanted.path
                with storage_errors("write", path):
                    self._descriptor = _create(path)
            return self._descriptor

    def finish(self, index: int, digests: list[Any]) -> None:
        """Mark a span as written; after the last one, verify and sync the file."""
        with self._lock:
            self._digests[index] = digests
            if len(self._digests) < self.spans:
                return
        descriptor = self.open()
        try:
            if self.wanted.sha256 not in (None, self._checksum(descriptor)):
                raise DamagedError(f"{self.url} is damaged: its checksum differs")
            os.fsync(descriptor)
            self._close()
        except OSError as error:
            # The page cache may have data that the disk lacks: the next try must not trust it.
            with suppress(OSError):
                self.wanted.path.unlink()
            raise storage_error("write", self.wanted.path, error) from error
        self._digests.clear()
        self.is_done = True

    def give_up(self) -> None:
        """Close the file; called when no thread writes to it any more."""
        with suppress(OSError):
            self._close()

    def _close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _checksum(self, descriptor: int) -> str | None:
        if self.wanted.sha256 is None:
            return None
        if not self.hashes_pieces:
            return sha256_of_open(descriptor, self.wanted.sha256)
        checksum = Checksum(self.wanted.sha256)
        for index in range(self.spans):
            for digest in self._digests[index]:
                checksum.add_piece(digest)
        return checksum.text()


def _create(path: Path) -> int:
    """Create a file; its folder is made only if that fails, because there may be thousands."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        return os.open(path, flags, FILE_MODE)


class _Fetching:
    """State that all threads of one download share."""

    def __init__(
        self, remote: Remote, files: list[_File], on_bytes: Callable[[int], object]
    ) -> None:
        self._remote, self._files, self._on_bytes = remote, files, on_bytes
        self._todo = deque(files)
        self._changed, self._reporting = threading.Condition(), threading.Lock()
        self._stopped = threading.Event()
        self._error: BaseException | None = None

    def work(self) -> None:
        """Fetch spans until none is left or a thread has failed."""
        try:
            while (chosen := self._choose()) is not None:
                self._fetch(*chosen)
        except BaseException as error:  # `require_all` raises it
            with self._changed:
                self._error = self._error or error
            self.stop()

    def _choose(self) -> tuple[_File, int] | None:
        """Return the next span: of the file, among the first ones, with the fewest threads.

        The first span of a file is requested alone until data arrives: some servers read all of a
        large object for each request before they answer, to compute an MD5.
        """
        with self._changed:
            while self._todo and not self._stopped.is_set():
                first = islice(self._todo, _FILES)
                ready = [each for each in first if each.is_answered or not each.begun]
                if ready:
                    return self._begin(min(ready, key=lambda each: each.writing))
                self._changed.wait()
            return None

    def _begin(self, file: _File) -> tuple[_File, int]:
        index = file.begun
        file.begun += 1
        file.writing += 1
        if file.begun == file.spans:
            self._todo.remove(file)
        return file, index

    def answered(self, file: _File) -> None:
        with self._changed:
            file.is_answered = True
            self._changed.notify_all()

    def report(self, size_bytes: int) -> None:
        with self._reporting:
            self._on_bytes(size_bytes)

    def require_wanted(self) -> None:
        """Raise _StoppedError if a thread has failed."""
        if self._stopped.is_set():
            raise _StoppedError

    def stop(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def require_all(self) -> None:
        """Raise the error of the first thread that failed; called after all have ended."""
        if self._error is not None:
            raise self._error
        assert all(file.is_done for file in self._files)

    def _fetch(self, file: _File, index: int) -> None:
        size_bytes, begin = file.wanted.size_bytes, index * _SPAN_BYTES
        end = min(begin + _SPAN_BYTES, size_bytes)
        span = _Span(self, file, begin, end)
        # One more byte than expected, to detect a longer object.
        self._remote.stream(file.wanted.name, end + 1 if end == size_bytes else end, span)
        if span.at != end:
            raise DamagedError(f"{file.url} has fewer than {size_bytes} bytes")
        file.finish(index, span.digests)
        with self._changed:
            file.writing -= 1


class _StoppedError(Exception):
    """Another thread failed; never shown."""


class _Span(Sink):
    """Hashes the bytes of a span by piece, and writes them to the file."""

    def __init__(self, fetching: _Fetching, file: _File, begin: int, end: int) -> None:
        self.at, self._begin, self._end, self._reported_at = begin, begin, end, begin
        self._fetching, self._file, self._descriptor = fetching, file, file.open()
        self.digests: list[Any] = [hashlib.sha256()]

    def require_wanted(self) -> None:
        self._fetching.require_wanted()

    def take(self, data: bytes) -> None:
        self.require_wanted()
        if self.at + len(data) > self._end:
            size_bytes = self._file.wanted.size_bytes
            raise DamagedError(f"{self._file.url} has more than {size_bytes} bytes")
        if self.at == self._begin:
            self._fetching.answered(self._file)
        if self._file.hashes_pieces:
            self._hash(memoryview(data))
        view = memoryview(data)
        while view:
            with storage_errors("write", self._file.wanted.path):
                count = os.pwrite(self._descriptor, view, self.at)
            view, self.at = view[count:], self.at + count
        if self.at == self._end or self.at - self._reported_at >= _REPORT_BYTES:
            self._fetching.report(self.at - self._reported_at)
            self._reported_at = self.at

    def _hash(self, view: memoryview) -> None:
        at = self.at - self._begin
        while view:
            if at == len(self.digests) * PIECE_BYTES:
                self.digests.append(hashlib.sha256())
            room = len(self.digests) * PIECE_BYTES - at
            self.digests[-1].update(view[:room])
            at, view = at + min(room, len(view)), view[room:]
