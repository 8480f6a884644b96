"""Open the store that a URL names. No other module opens one.

The URL may come from a file that others wrote, such as a ``run.json`` in a bucket. So it is always
checked here: only the kinds of store in :func:`hpcflow.model.kinds.check_store_url` are opened, and
fsspec never gets a chained URL.
"""

from __future__ import annotations

import re
from typing import Any, Final

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import InputError
from hpcflow.mirror.remote import Options, Remote
from hpcflow.model.kinds import check_endpoint_url, check_store_url

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
