"""Which kind of store a URL names."""

from __future__ import annotations

import re
from typing import Final

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import InputError
from hpcflow.mirror.remote import Options, Remote
from hpcflow.model.kinds import check_store_url

_LIKE: Final = "write it like s3://bucket/prefix or /an/absolute/folder"
_PLAIN: Final = Options()


def open_remote(
    url: str,
    options: Options = _PLAIN,
    *,
    clock: Clock | None = None,
    patience_s: float = 60.0,
    beside: Remote | None = None,
) -> Remote:
    """The folder that ``url`` names: ``s3://bucket/prefix``, ``/a/folder``, any URL of fsspec's.

    Nothing is asked of the store yet.

    Args:
        patience_s: how long a call waits for a store that does not answer.
        beside: another folder, whose connections are shared where that can be.

    Raises:
        InputError: no such kind of store, a URL with credentials in it, or a package is missing.
    """
    try:
        check_store_url(url)
    except ValueError as error:
        shown = re.sub("//[^/]*@", "//…@", url[:200])
        raise InputError(f"{error}: {shown!r}", next_action=_LIKE) from None
    clock = clock or SystemClock()
    if url.startswith(("s3://", "s3a://")):
        from hpcflow.mirror.s3_remote import S3Remote

        other = beside if isinstance(beside, S3Remote) else None
        return S3Remote(url, options, clock=clock, patience_s=patience_s, beside=other)
    from hpcflow.mirror.fsspec_remote import FsspecRemote

    return FsspecRemote(url, clock=clock, patience_s=patience_s)
