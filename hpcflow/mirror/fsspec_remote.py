"""A folder of any store that fsspec knows: plain folders, Google's and Microsoft's, memory, SSH."""

from __future__ import annotations

import os
import secrets
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import InputError, MirrorError, MirrorUnavailable, MissingObjectError
from hpcflow.mirror.patience import patiently
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.storage.files import fsync_folder

_T = TypeVar("_T")
#: There an object appears when all of it has come. Elsewhere it is written aside and renamed.
_ATOMIC: Final = frozenset({"gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "s3", "s3a"})
#: A crash of the machine may take back what only its memory has.
_LOCAL: Final = frozenset({"file", "local"})
_ASIDE: Final = ".hpcflow-tmp"
_LASTING: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class FsspecRemote(Remote):
    """A folder of a store that fsspec knows; without sending in parts.

    Where that is a plain folder, it is asked whether it is there at all before and after whatever
    is asked of it: one of a file system that is not mounted would look like an empty store.
    """

    def __init__(self, url: str, *, clock: Clock, patience_s: float) -> None:
        super().__init__(url)
        self._clock, self._patience_s = clock, patience_s
        self._fs, root = _file_system(url)
        self._root = root.rstrip("/")
        self._folder = Path(self._root or "/")  # where it is a plain one
        protocol = self._fs.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_atomic = not protocols.isdisjoint(_ATOMIC)
        self.is_folder = not protocols.isdisjoint(_LOCAL)

    def lacks_root(self) -> bool:
        return self.is_folder and not os.path.lexists(self._folder)

    def make_root(self) -> None:
        if not self.lacks_root():
            return
        parent, doing = self._folder.parent, f"make {self.url}"

        def make() -> None:
            self._folder.mkdir(exist_ok=True)
            fsync_folder(parent)

        try:
            self._once(doing, make)
        except MissingObjectError:
            raise self._not_there(doing, parent) from None

    def names(self, prefix: str = "") -> dict[str, Entry]:
        folder, _, _ = prefix.rpartition("/")

        def look() -> dict[str, Any]:
            self._fs.invalidate_cache()
            how = {"on_error": _require_missing} if self.is_folder else {}
            found = self._fs.find(self._path(folder), detail=True, **how)
            return dict(found) if isinstance(found, dict) else {}

        entries = {
            self._name(path): _entry(info)
            for path, info in self._call("list", folder, look).items()
        }
        return {
            name: entries[name]
            for name in sorted(entries)
            if name.startswith(prefix) and not name.endswith(_ASIDE)
        }

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
        sha256: str | None = None,  # noqa: ARG002 - no store of these keeps one that we could trust
    ) -> str | None:
        def send() -> None:
            with self._written(name) as path:
                self._fs.pipe_file(path, bytes(data))
                self._require_size(path, len(data))

        self._call("send", name, send)
        return None

    def put_stream(self, pieces: Iterator[bytes], name: str) -> None:
        # Without asking again: the pieces come once. The next pass of the mirror does that.
        doing = f"send {self.url_of(name)}"
        with self._written(name) as path:
            file = self._once(doing, lambda: self._fs.open(path, "wb"))
            size_bytes = 0
            try:
                for piece in pieces:  # what they raise is the caller's
                    self._once(doing, partial(file.write, piece))
                    size_bytes += len(piece)
                self._once(doing, file.close)
                self._once(doing, lambda: self._require_size(path, size_bytes))
            except BaseException:
                with suppress(Exception):
                    file.discard()  # closing it would make an object of the half
                raise

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._call("delete", name, partial(self._remove, name))

    @contextmanager
    def _written(self, name: str) -> Iterator[str]:
        """Where ``name`` is to be written; it gets its name when the block has ended well."""
        path, doing = self._path(name), f"send {self.url_of(name)}"
        aside = path if self._is_atomic else f"{path}.{secrets.token_hex(4)}{_ASIDE}"
        folder, made = path.rpartition("/")[0], []
        if self.is_folder:
            self._require_root(doing)
            made = self._once(doing, lambda: _make_folders(Path(folder), self._folder))
        elif not self._is_atomic:
            self._once(doing, lambda: self._fs.makedirs(folder, exist_ok=True))
        try:
            yield aside
            if self.is_folder:
                self._once(doing, lambda: _publish(Path(aside), Path(path), made))
            elif not self._is_atomic:
                self._once(doing, lambda: self._fs.mv(aside, path))
        except BaseException:
            if not self._is_atomic:
                with suppress(Exception):
                    self._fs.rm_file(aside)
            raise

    def _require_size(self, path: str, size_bytes: int) -> None:
        """Whether all of it is there: not every kind of store says so when it is closed."""
        if self._is_atomic:
            return
        self._fs.invalidate_cache()
        found = self._fs.info(path)["size"]
        if found != size_bytes:
            raise OSError(f"{size_bytes} bytes were sent, and {found} are there")

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _name(self, path: str) -> str:
        return path[len(self._root) :].lstrip("/")

    def _call(self, doing: str, name: str, do: Callable[[], _T]) -> _T:
        what = f"{doing} {self.url_of(name)}"
        self._require_root(what)  # without patience: nobody mounts it within a minute
        try:
            found = patiently(
                lambda: self._once(what, do), clock=self._clock, patience_s=self._patience_s
            )
        except MissingObjectError:
            self._require_root(what)
            raise
        self._require_root(what)  # else what was found may be the emptiness behind it
        return found

    def _require_root(self, doing: str) -> None:
        """Refuse to take a folder that is not there for an empty store.

        Raises:
            MirrorUnavailable: it is not there, or is no folder.
            MirrorError: nobody may look.
        """
        if not self.is_folder:
            return
        root = self._folder
        try:
            is_folder = stat.S_ISDIR(root.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            raise self._not_there(doing, root) from None
        except OSError as error:  # a handle that is stale, a server that is gone
            raise self._translated(error, doing) from error
        if not is_folder:
            raise MirrorUnavailable(
                f"cannot {doing}: {root} is no folder",
                next_action=f"see what it is: ls -ld {shlex.quote(str(root))}; or correct "
                "mirror.url in the site file or the config",
            )

    def _not_there(self, doing: str, folder: Path) -> MirrorUnavailable:
        return MirrorUnavailable(
            f"cannot {doing}: {folder} is not there; is it mounted?",
            next_action="have it mounted; or if it never was there, and only then, make it: "
            f"mkdir -p {shlex.quote(str(folder))}",
        )

    def _once(self, doing: str, do: Callable[[], _T]) -> _T:
        try:
            return do()
        except MirrorError:
            raise
        except Exception as error:  # every kind of store brings errors of its own
            raise self._translated(error, doing) from error

    def _translated(self, error: Exception, doing: str) -> MirrorError:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, FileNotFoundError):
            return MissingObjectError(f"cannot {doing}: there is no such object")
        if isinstance(error, _LASTING) or not isinstance(error, OSError):
            return MirrorError(
                f"cannot {doing}: {said}",
                next_action="see who may read and write there, and whether you are logged in",
            )
        return MirrorUnavailable(
            f"cannot {doing}: {said}", next_action="nothing is lost, the mirror tries again"
        )


def _make_folders(folder: Path, root: Path) -> list[Path]:
    """Make ``folder`` below ``root``, which itself is never made here: it may be unmounted.

    Returns:
        The folders in which that is seen, and is not on the disk yet.
    """
    below = [folder, *folder.parents]
    missing = [path for path in below[: below.index(root)] if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
    return [path.parent for path in missing]


def _require_missing(error: OSError) -> None:
    """A folder that is not there has nothing; of one that cannot be read nobody knows."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _publish(aside: Path, path: Path, made: list[Path]) -> None:
    """Rename a file that is on the disk then, with the folders that it is in."""
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    aside.replace(path)
    for folder in (path.parent, *made):
        fsync_folder(folder)


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{url} cannot be used: {error}",
            next_action="install fsspec's package for this kind of store, or correct the URL",
        ) from None
    return fs, str(root)


def _entry(info: Any) -> Entry:
    etag = info.get("ETag") or info.get("etag") or info.get("md5Hash")
    return Entry(int(info["size"] or 0), str(etag).strip('"') if etag else None)
