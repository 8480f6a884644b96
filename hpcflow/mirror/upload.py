"""Upload files: in parallel, large ones in parts, checksums computed while they are read.

Every byte is read once, and hashed before its object appears, so a file that differs from its
manifest never becomes an object. Memory is bounded for all sizes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from hpcflow.errors import DamagedError, MirrorError, MirrorUnavailable, MissingObjectError
from hpcflow.mirror.limits import Line, Loan
from hpcflow.mirror.records import Upload
from hpcflow.mirror.remote import Part, Parts, Remote
from hpcflow.runtime.checksum import PIECE_BYTES, Checksum, is_of_whole
from hpcflow.runtime.reading import open_file

#: Files up to this size are sent in one request. A killed upload loses at most that much. Equal to
#: a piece of a checksum, so that each part is hashed only once.
PART_BYTES: Final = PIECE_BYTES
_SMALLEST_PART_BYTES: Final = 5 << 20
_MOST_PARTS: Final = 10_000


@dataclass(frozen=True)
class Outgoing:
    """A file to upload.

    Attributes:
        size_bytes: how much of it to send; more may be appended meanwhile.
        sha256: the checksum in its manifest; None if there is none to compare with.
        known: an earlier multipart upload of it to continue.
        on_begin: called when a multipart upload begins, before the first part.
        on_sent: called when the object exists.
        may_change: skip the file if it is missing or shorter by now, instead of raising.
    """

    path: Path
    name: str
    size_bytes: int
    sha256: str | None = None
    known: Upload | None = None
    on_begin: Callable[[Upload], object] | None = None
    on_sent: Callable[[], object] | None = None
    may_change: bool = False


class _OtherPartError(Exception):
    """A part that was sent before differs from the file now."""


class Uploader:
    """Uploads files to one store; its threads share its limits."""

    def __init__(self, remote: Remote, line: Line) -> None:
        self.remote = remote
        self._bandwidth, self._memory = line.bandwidth, line.memory
        self._files, self._requests = line.files, line.requests

    def send(
        self, outgoing: Iterable[Outgoing], *, on_bytes: Callable[[int], object] = lambda _: None
    ) -> None:
        """Upload all of ``outgoing``; return when all objects exist.

        Args:
            on_bytes: called with the number of bytes sent since the last call, by one thread at a
                time.

        Raises:
            DamagedError: the size or checksum of a file differs; it was not sent.
            OSError: a file cannot be read; FileNotFoundError if it is missing.
        """
        telling, stopped = threading.Lock(), threading.Event()

        def tell(size_bytes: int) -> None:
            with telling:
                on_bytes(size_bytes)

        # The largest first, because all would wait for one that begins last.
        todo = sorted(outgoing, key=lambda each: -each.size_bytes)
        results = [self._files.submit(self._send, each, tell, stopped) for each in todo]
        first: BaseException | None = None
        for result in results:
            try:
                result.result()
            except BaseException as error:  # noqa: PERF203 - wait for every thread
                first = first or error
                stopped.set()
        if first is not None:
            raise first

    def part_bytes(self, size_bytes: int) -> int:
        """Return the part size of a file: with a bandwidth limit, about one part a second."""
        usual = PART_BYTES
        if self._bandwidth.bytes_s is not None:
            usual = max(_SMALLEST_PART_BYTES, min(usual, self._bandwidth.bytes_s))
        return max(usual, -(-size_bytes // _MOST_PARTS))

    def _send(self, out: Outgoing, tell: Callable[[int], object], stopped: threading.Event) -> None:
        if stopped.is_set():
            return
        try:
            with open_file(out.path) as file:
                is_sent = self._send_open(out, file, tell, stopped)
        except (FileNotFoundError, DamagedError):
            if not out.may_change:
                raise
            is_sent = False
        if is_sent and out.on_sent is not None:
            out.on_sent()

    def _send_open(
        self,
        out: Outgoing,
        file: BinaryIO,
        tell: Callable[[int], object],
        stopped: threading.Event,
    ) -> bool:
        """Return whether it was sent; False if another file failed meanwhile."""
        if out.size_bytes <= PART_BYTES:
            self._send_whole(out, file)
            tell(out.size_bytes)
            return True
        if self.remote.parts is None:
            self.remote.put_stream(self._pieces(out, file, tell), out.name)
            return True
        return self._send_parts(out, file, self.remote.parts, tell, stopped)

    def _send_whole(self, out: Outgoing, file: BinaryIO) -> None:
        with self._memory.holding(out.size_bytes):
            data = _read(out, file, out.size_bytes)
            sha256 = hashlib.sha256(data).hexdigest()
            _compare(out, sha256)
            self._bandwidth.wait(len(data))
            self.remote.put_bytes(data, out.name, sha256=sha256)

    def _pieces(
        self, out: Outgoing, file: BinaryIO, tell: Callable[[int], object]
    ) -> Iterator[bytes]:
        """Yield the file in order; raise at the end if its checksum differs."""
        checksum = Checksum(out.sha256)
        for begin in range(0, out.size_bytes, PART_BYTES):
            size_bytes = min(PART_BYTES, out.size_bytes - begin)
            with self._memory.holding(size_bytes):
                data = _read(out, file, size_bytes)
                checksum.update(data)
                self._bandwidth.wait(size_bytes)
                yield data
            tell(size_bytes)
        _compare(out, checksum.text())

    def _send_parts(
        self,
        out: Outgoing,
        file: BinaryIO,
        store: Parts,
        tell: Callable[[int], object],
        stopped: threading.Event,
    ) -> bool:
        upload, there = self._resume_or_begin(out, store)
        try:
            try:
                parts = self._read_and_send(out, file, store, upload, there, tell, stopped)
            except _OtherPartError:  # not every store lets a part be replaced
                _abort(store, out.name, upload.upload_id)
                upload = self._begin(out, store)
                os.lseek(file.fileno(), 0, os.SEEK_SET)
                parts = self._read_and_send(out, file, store, upload, {}, tell, stopped)
        except DamagedError:
            _abort(store, out.name, upload.upload_id)
            raise
        if parts is None:
            return False
        try:
            store.finish(out.name, upload.upload_id, parts)
        except MissingObjectError:  # it may be finished already, and the answer was lost
            if not self._has(out):
                raise
        return True

    def _has(self, out: Outgoing) -> bool:
        there = self.remote.stat(out.name)
        return (
            there is not None
            and out.sha256 is not None
            and (there.size_bytes, there.sha256) == (out.size_bytes, out.sha256)
        )

    def _read_and_send(
        self,
        out: Outgoing,
        file: BinaryIO,
        store: Parts,
        upload: Upload,
        there: dict[int, Part],
        tell: Callable[[int], object],
        stopped: threading.Event,
    ) -> list[Part] | None:
        """Send all parts and return them, after the checksum matched; None if stopped."""
        checksum = Checksum(out.sha256)
        has_pieces = upload.part_bytes == PIECE_BYTES and not is_of_whole(out.sha256)
        parts: list[Part] = []
        results: list[Future[Part]] = []
        try:
            for number, begin in enumerate(range(0, out.size_bytes, upload.part_bytes), 1):
                if stopped.is_set() or any(each.done() and each.exception() for each in results):
                    break
                lent = self._memory.lend(min(upload.part_bytes, out.size_bytes - begin))
                try:
                    _read_into(lent.data, out, file)
                    digest = hashlib.sha256(lent.data)
                    if has_pieces:
                        checksum.add_piece(digest)
                    else:
                        checksum.update(lent.data)
                    part = there.get(number)
                    if part is None:
                        work = (store, out.name, upload, number, lent, digest.hexdigest(), tell)
                        results.append(self._requests.submit(self._send_part, *work))
                        continue
                    _require_of(part, lent.data)
                    parts.append(part)
                    tell(len(lent.data))
                except BaseException:
                    # If no thread could start, the work may be queued anyway.
                    if lent.claim():
                        self._memory.hand_back(lent)
                    raise
                self._memory.hand_back(lent)
        finally:
            wait(results)
        parts += [each.result() for each in results]
        if stopped.is_set():
            return None
        _compare(out, checksum.text())
        return parts

    def _resume_or_begin(self, out: Outgoing, store: Parts) -> tuple[Upload, dict[int, Part]]:
        """Return the known upload of the same bytes with its parts, or begin a new one."""
        known = out.known
        if (
            known is not None
            and out.sha256 is not None
            and known.sha256 == out.sha256
            # Else another version recorded it, or the record is forged.
            and known.part_bytes == self.part_bytes(out.size_bytes)
        ):
            try:
                there = store.done(out.name, known.upload_id)
            except MirrorUnavailable:
                raise
            except MirrorError:  # the store cannot list parts, or refuses: start again
                there = None
            if there is not None:
                return known, there
        return self._begin(out, store), {}

    def _begin(self, out: Outgoing, store: Parts) -> Upload:
        upload_id = store.begin(out.name, out.sha256)
        upload = Upload(upload_id, self.part_bytes(out.size_bytes), out.sha256)
        if out.on_begin is not None:
            out.on_begin(upload)
        return upload

    def _send_part(
        self,
        store: Parts,
        name: str,
        upload: Upload,
        number: int,
        lent: Loan,
        sha256: str,
        tell: Callable[[int], object],
    ) -> Part:
        if not lent.claim():
            raise MirrorError(f"part {number} of {name} was given up")  # never shown
        size_bytes = len(lent.data)
        try:
            self._bandwidth.wait(size_bytes)
            part = store.put(name, upload.upload_id, number, lent.data, sha256=sha256)
        finally:
            self._memory.hand_back(lent)
        tell(size_bytes)
        return part


def abort_unfinished(remote: Remote, prefix: str) -> None:
    """Abort all multipart uploads below ``prefix``, because stores charge for their parts.

    If the store refuses, the bucket's rules must do it.
    """
    if remote.parts is not None:
        with suppress(MirrorError):
            for name, upload_id in remote.parts.unfinished(prefix):
                remote.parts.abort(name, upload_id)


def _abort(store: Parts, name: str, upload_id: str) -> None:
    with suppress(MirrorError):  # left to the bucket's rules
        store.abort(name, upload_id)


def _read(out: Outgoing, file: BinaryIO, size_bytes: int) -> bytes:
    data = os.read(file.fileno(), size_bytes)
    while len(data) < size_bytes:  # a short read: a signal, a network file system
        more = os.read(file.fileno(), size_bytes - len(data))
        if not more:
            raise _torn(out)
        data += more
    return data


def _read_into(data: bytearray, out: Outgoing, file: BinaryIO) -> None:
    left = memoryview(data)
    while left:  # a short read: a signal, a network file system
        count = os.readv(file.fileno(), [left])
        if not count:
            raise _torn(out)
        left = left[count:]


def _torn(out: Outgoing) -> DamagedError:
    return DamagedError(f"{out.path} is shorter than expected")


def _require_of(part: Part, data: bytes | bytearray) -> None:
    """Check that the part in the store has these bytes.

    A killed process may have sent others. If the ETag is not an MD5, as with a KMS key, the check
    fails, too.
    """
    etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if (part.size_bytes, part.etag.strip('"')) != (len(data), etag):
        raise _OtherPartError


def _compare(out: Outgoing, sha256: str) -> None:
    if out.sha256 not in (None, sha256):
        raise DamagedError(f"{out.path} is not what was written: its checksum differs")
