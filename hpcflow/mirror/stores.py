"""Open the store that a URL names; no other module opens one. Keep the stores of a pass open.

The URL may come from a file that others wrote, such as a ``run.json`` in a bucket. So it is always
checked here: only the kinds of store in :func:`hpcflow.model.kinds.check_store_url` are opened, and
fsspec never gets a chained URL.
"""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from typing import Any, Final

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import DamagedError, HpcflowError, InputError, MirrorError
from hpcflow.mirror.limits import MEMORY_BYTES, Bandwidth, Line, Memory
from hpcflow.mirror.remote import Options, Remote
from hpcflow.mirror.upload import Uploader
from hpcflow.model.kinds import check_endpoint_url, check_store_url
from hpcflow.model.run import Mirror

_LIKE: Final = "write it like s3://bucket/prefix or /absolute/directory"
_PLAIN: Final = Options()


def open_remote(
    url: str,
    options: Options = _PLAIN,
    *,
    clock: Clock | None = None,
    patience_s: float = 60.0,
    beside: Remote | None = None,
) -> Remote:
    """Open the store at ``url``: ``s3://bucket/prefix``, ``/a/folder``, ``gs://bucket/prefix``.

    No request is sent yet.

    Args:
        patience_s: how long a call retries if the store does not answer.
        beside: another folder, to share its connections if possible.

    Raises:
        InputError: the kind of store is unknown, the URL has credentials, or a package is missing.
    """
    try:
        check_store_url(url)
        if options.endpoint_url is not None:
            check_endpoint_url(options.endpoint_url)
    except ValueError as error:
        shown = re.sub("//[^/]*@", "//…@", url[:200])
        raise InputError(f"{error}: {shown!r}", next_action=_LIKE) from None
    clock = clock or SystemClock()
    if url.startswith(("s3://", "s3a://")):
        from hpcflow.mirror.s3_remote import S3Remote

        other = beside if isinstance(beside, S3Remote) else None
        return S3Remote(url, options, clock=clock, patience_s=patience_s, beside=other)
    if url.startswith("/"):
        from hpcflow.mirror.folder_remote import FolderRemote

        return FolderRemote(url, shared=options.shared, clock=clock, patience_s=patience_s)
    from hpcflow.mirror.fsspec_remote import FsspecRemote

    fs, root = _file_system(url)
    return FsspecRemote(url, fs, root, clock=clock, patience_s=patience_s)


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(url)
    except Exception as error:  # a third-party package may raise anything
        raise InputError(
            f"{url} cannot be used: {error}",
            next_action="install fsspec's package for this kind of store, or correct the URL",
        ) from None
    return fs, str(root)


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
    """The stores of one pass; safe for several threads. One that has failed is skipped."""

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
