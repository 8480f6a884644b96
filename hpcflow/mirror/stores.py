"""The stores of one pass: each is opened once, and skipped after it has failed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import DamagedError, HpcflowError, MirrorError
from hpcflow.mirror.limits import MEMORY_BYTES, Bandwidth, Line, Memory
from hpcflow.mirror.opening import open_remote
from hpcflow.mirror.remote import Options, Remote
from hpcflow.mirror.upload import Uploader
from hpcflow.model.run import Mirror

#: Settings that runs may differ in, and still share a store.
_NOT_ITS_OWN: Final = {"keep_last": None, "keep_for_s": None, "partition": None}


def open_store(
    mirror: Mirror, *, clock: Clock, patience_s: float = 60.0, beside: Remote | None = None
) -> Remote:
    """Open the store of a run.

    Args:
        beside: another store, to share its connections if possible.

    Raises:
        InputError: the URL is not valid, or a package is missing.
        MirrorError: there are no credentials.
    """
    options = Options(
        endpoint_url=mirror.endpoint_url,
        encryption=mirror.encryption,
        kms_key=mirror.kms_key,
        storage_class=mirror.storage_class,
        shared=mirror.shared,
    )
    return open_remote(mirror.url, options, clock=clock, patience_s=patience_s, beside=beside)


class Stores:
    """The stores of one pass; safe for several threads."""

    def __init__(self, clock: Clock, *, patience_s: float = 60.0) -> None:
        self._clock, self._patience_s = clock, patience_s
        self._open: dict[Mirror, Uploader] = {}
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, str | None, int | None], Line] = {}
        self._memory, self._to_close = Memory(MEMORY_BYTES), ExitStack()
        #: URL of a store that is skipped -> its error.
        self.refused: dict[str, HpcflowError] = {}

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._to_close.close()

    def uploader(self, mirror: Mirror) -> Uploader | None:
        """Return the uploader for the store of a run; None if the store has failed.

        Runs that differ only in retention share one, so the bandwidth limit is common.
        """
        key = mirror.model_copy(update=_NOT_ITS_OWN)
        with self._lock:
            if mirror.url in self.refused:
                return None
            if key not in self._open:
                try:
                    remote = self._open_store(mirror)
                except HpcflowError as error:
                    self.refused[mirror.url] = error
                    return None
                self._open[key] = Uploader(remote, self._line(mirror))
            return self._open[key]

    def _line(self, mirror: Mirror) -> Line:
        """Return the line for the server and limit: several folders of a server share one."""
        kind = mirror.url.partition("://")[0] if "://" in mirror.url else ""
        key = (kind, mirror.endpoint_url, mirror.bandwidth_bytes_s)
        if key not in self._lines:
            line = Line(Bandwidth(mirror.bandwidth_bytes_s, self._clock), self._memory)
            self._lines[key] = self._to_close.enter_context(line)
        return self._lines[key]

    def _open_store(self, mirror: Mirror) -> Remote:
        """Open a store; share the connections of another one at the same endpoint."""
        beside = next(
            (
                uploader.remote
                for other, uploader in self._open.items()
                if other.endpoint_url == mirror.endpoint_url
            ),
            None,
        )
        return open_store(mirror, clock=self._clock, patience_s=self._patience_s, beside=beside)

    def judge(self, mirror: Mirror, error: MirrorError) -> None:
        """After ``error``, list the store; skip it from now on if that fails too."""
        uploader = self.uploader(mirror)
        if uploader is None or isinstance(error, DamagedError):
            return
        try:
            uploader.remote.folders()
        except MirrorError as again:
            with self._lock:
                self.refused.setdefault(mirror.url, again)
