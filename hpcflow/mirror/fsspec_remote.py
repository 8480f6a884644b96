"""A folder of Google's or Microsoft's object store, through fsspec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import MirrorError, MirrorUnavailable, MissingObjectError
from hpcflow.mirror.remote import Entry, Remote, with_retries

_T = TypeVar("_T")
_LASTING: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class FsspecRemote(Remote):
    """A folder of an object store, through fsspec, without multipart uploads.

    Args:
        fs: fsspec's file system, whose objects appear as a whole.
        root: the folder in it.
    """

    def __init__(self, url: str, fs: Any, root: str, *, clock: Clock, patience_s: float) -> None:
        super().__init__(url)
        self._clock, self._patience_s = clock, patience_s
        self._fs, self._root = fs, root.rstrip("/")

    def names(self, prefix: str = "") -> dict[str, Entry]:
        folder, _, _ = prefix.rpartition("/")

        def look() -> dict[str, Any]:
            self._fs.invalidate_cache()
            found = self._fs.find(self._path(folder), detail=True)
            return dict(found) if isinstance(found, dict) else {}

        entries = {
            path[len(self._root) :].lstrip("/"): _entry(info)
            for path, info in self._call("list", folder, look).items()
        }
        return {name: entries[name] for name in sorted(entries) if name.startswith(prefix)}

    def folders(self, prefix: str = "") -> list[str]:
        def look() -> list[str]:
            self._fs.invalidate_cache()
            with suppress(FileNotFoundError):
                return sorted(
                    info["name"].rstrip("/").rpartition("/")[2]
                    for info in self._fs.ls(self._path(prefix), detail=True)
                    if info["type"] == "directory"
                )
            return []

        return self._call("list", prefix, look)

    def stat(self, name: str) -> Entry | None:
        def look() -> Any:
            self._fs.invalidate_cache()
            return self._fs.info(self._path(name))

        try:
            info = self._call("look at", name, look)
        except MissingObjectError:
            return None
        return _entry(info) if info["type"] == "file" else None

    def read_range(self, name: str, begin: int, end: int) -> bytes:
        def read() -> bytes:
            return bytes(self._fs.cat_file(self._path(name), start=begin, end=end))

        return self._call("read", name, read) if end > begin else b""

    def put_bytes(
        self,
        data: bytes | memoryview,
        name: str,
        *,
        sha256: str | None = None,  # noqa: ARG002 - these stores keep no trustworthy checksum
    ) -> str | None:
        self._call("send", name, lambda: self._fs.pipe_file(self._path(name), bytes(data)))
        return None

    def put_stream(self, pieces: Iterator[bytes], name: str) -> None:
        # No retries, because the pieces come once. The next pass of the mirror tries again.
        doing = f"send {self.url_of(name)}"
        file = self._once(doing, lambda: self._fs.open(self._path(name), "wb"))
        try:
            for piece in pieces:  # their errors are the caller's
                self._once(doing, partial(file.write, piece))
            self._once(doing, file.close)
        except BaseException:
            with suppress(Exception):
                file.discard()  # closing it would create an incomplete object
            raise

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._call("delete", name, partial(self._remove, name))

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _call(self, doing: str, name: str, do: Callable[[], _T]) -> _T:
        what = f"{doing} {self.url_of(name)}"
        return with_retries(
            lambda: self._once(what, do), clock=self._clock, patience_s=self._patience_s
        )

    def _once(self, doing: str, do: Callable[[], _T]) -> _T:
        try:
            return do()
        except MirrorError:
            raise
        except Exception as error:  # every kind of store has its own errors
            raise self._translated(error, doing) from error

    def _translated(self, error: Exception, doing: str) -> MirrorError:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, FileNotFoundError):
            return MissingObjectError(f"cannot {doing}: there is no such object")
        if isinstance(error, _LASTING) or not isinstance(error, OSError):
            return MirrorError(
                f"cannot {doing}: {said}",
                next_action="check its permissions, and whether you are logged in",
            )
        return MirrorUnavailable(
            f"cannot {doing}: {said}", next_action="nothing is lost, the mirror tries again"
        )


def _entry(info: Any) -> Entry:
    etag = info.get("ETag") or info.get("etag") or info.get("md5Hash")
    return Entry(int(info["size"] or 0), str(etag).strip('"') if etag else None)
