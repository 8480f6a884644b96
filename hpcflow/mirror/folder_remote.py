"""A plain folder on another file system, used as a store.

Other users may write there. So hpcflow opens every path from the store's root by descriptors, and
follows no links. Only folders and regular files count; it never opens a pipe, which would block.
A team may share the store, so it reads files of any owner, but only if the file and all its
folders, from the run's down, have the same owner. The root itself may be a link.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import MirrorError, MirrorUnavailable, MissingObjectError, shell_word
from hpcflow.mirror.remote import Entry, ListBudget, Remote, with_retries
from hpcflow.runtime.reading import UnsafeFileError, open_regular
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE, write_all
from hpcflow.storage.shared import make_folder, open_folder

_T = TypeVar("_T")
_Data: TypeAlias = "bytes | memoryview"
_ASIDE: Final = ".hpcflow-tmp"
#: The deepest folders that are searched.
_MOST_DEPTH: Final = 100
_ROOT_USER: Final = 0
#: Errors that a retry does not solve.
_LASTING: Final = (
    BlockingIOError,  # its owner holds a lease (fcntl F_SETLEASE)
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


#: A pass mirrors several runs at once, each with a remote of its own: without this lock one of them
#: would replace the empty root that another one has just made and opened.
_MAKING_ROOT: Final = threading.Lock()


class FolderRemote(Remote):
    """A plain folder, without multipart uploads.

    Each operation first and last checks that the folder exists: if its file system is not mounted,
    it would look like an empty store.

    Args:
        shared: whether the folder's group may read what is written; else only its owner.
    """

    is_folder = True

    def __init__(self, url: str, *, shared: bool, clock: Clock, patience_s: float) -> None:
        super().__init__(url)
        self._clock, self._patience_s = clock, patience_s
        self._folder, self._making = Path(self.url or "/"), threading.Lock()
        self._file_mode = FILE_MODE | 0o040 if shared else FILE_MODE
        self._folder_mode = FOLDER_MODE | 0o050 if shared else FOLDER_MODE

    def lacks_root(self) -> bool:
        return not os.path.lexists(self._folder)

    def make_root(self) -> None:
        if not self.lacks_root():
            return
        parent, doing = self._folder.parent, f"make {self.url}"

        def make() -> None:
            with _MAKING_ROOT, open_folder(os.path.realpath(parent)) as above:
                if self.lacks_root():
                    make_folder(self._folder.name, above, self._folder_mode)

        try:
            self._once(doing, make)
        except MissingObjectError:
            raise self._not_there(doing, parent) from None

    def names(self, prefix: str = "") -> dict[str, Entry]:
        found: dict[str, Entry] = {}

        def look(root: int) -> None:
            found.clear()
            budget = ListBudget(self.url_of(prefix))
            waiting = [prefix.rpartition("/")[0]]
            while waiting:
                for name, entry in _entries(root, waiting.pop()):
                    budget.add(name)
                    if _is_folder(entry) and name.count("/") < _MOST_DEPTH:
                        below = f"{name}/"
                        if below.startswith(prefix) or prefix.startswith(below):
                            waiting.append(name)
                    elif not name.startswith(prefix) or name.endswith(_ASIDE):
                        continue
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # removed meanwhile
                            found[name] = Entry(entry.stat(follow_symlinks=False).st_size)
                    else:
                        self.left_out.add(name)

        self._call("list", prefix.rpartition("/")[0], look)
        return {name: found[name] for name in sorted(found)}

    def folders(self, prefix: str = "") -> list[str]:
        def look(root: int) -> list[str]:
            found, budget = [], ListBudget(self.url_of(prefix))
            for name, entry in _entries(root, prefix.rstrip("/")):
                if _is_folder(entry):
                    budget.add(name)
                    found.append(name.rpartition("/")[2])
            return sorted(found)

        return self._call("list", prefix, look)

    def stat(self, name: str) -> Entry | None:
        def look(root: int) -> os.stat_result:
            with _folder_of(root, name) as (folder, last):
                return os.stat(last, dir_fd=folder, follow_symlinks=False)

        try:
            status = self._call("look at", name, look)
        except MissingObjectError:
            return None
        return Entry(status.st_size) if stat.S_ISREG(status.st_mode) else None

    def read_range(self, name: str, begin: int, end: int) -> bytes:
        def read(root: int) -> bytes:
            with _folder_of(root, name) as (folder, last):
                descriptor = open_regular(last, within=folder, any_owner=True)
                try:
                    if folder != root:
                        _require_one_owner(descriptor, folder, last)
                    return _read(descriptor, begin, min(end, os.fstat(descriptor).st_size))
                finally:
                    os.close(descriptor)

        return self._call("read", name, read) if end > begin else b""

    def put_bytes(
        self,
        data: bytes | memoryview,
        name: str,
        *,
        sha256: str | None = None,  # noqa: ARG002 - a folder stores no checksums
    ) -> str | None:
        def send(root: int) -> None:
            with self._written(f"send {self.url_of(name)}", root, name) as write:
                write(data)

        self._call("send", name, send)
        return None

    def put_stream(self, pieces: Iterator[bytes], name: str) -> None:
        # No retries, because the pieces come once. The next pass of the mirror tries again.
        doing = f"send {self.url_of(name)}"
        with self._root(doing) as root, self._written(doing, root, name) as write:
            for piece in pieces:  # their errors are the caller's
                write(piece)

    def delete(self, names: Iterable[str]) -> None:
        def remove(name: str, root: int) -> None:
            with suppress(FileNotFoundError), _folder_of(root, name) as (folder, last):
                os.unlink(last, dir_fd=folder)

        for name in names:
            self._call("delete", name, partial(remove, name))

    @contextmanager
    def _written(self, doing: str, root: int, name: str) -> Iterator[Callable[[_Data], None]]:
        """Yield a writer for ``name``; publish the object, synced, when the block succeeds."""
        with ExitStack() as stack:
            folder, last = self._once(doing, lambda: self._make_parents(root, name, stack))
            aside = f"{last[:50]}.{secrets.token_hex(4)}{_ASIDE}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = self._once(doing, lambda: os.open(aside, flags, FILE_MODE, dir_fd=folder))

            def settle() -> None:
                os.fchmod(descriptor, self._file_mode)
                os.fsync(descriptor)

            def publish() -> None:
                os.replace(aside, last, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)

            try:
                try:
                    yield lambda data: self._once(doing, lambda: write_all(descriptor, data))
                    self._once(doing, settle)
                finally:
                    os.close(descriptor)
                self._once(doing, publish)
            except BaseException:
                with suppress(OSError):
                    os.unlink(aside, dir_fd=folder)
                raise

    def _make_parents(self, root: int, name: str, stack: ExitStack) -> tuple[int, str]:
        """Open or create the folder of an object for writing; return it and the object's file name.

        Each directory on the path must belong to the user or root. Permissions of an existing one
        are only reduced, because others may have moved a private directory there.
        """
        above, last = _parts(name)
        folder = root
        for part in above:
            try:
                below = stack.enter_context(open_folder(part, within=folder))
            except FileNotFoundError:
                with self._making:  # else it could replace one that another thread has opened
                    if not _has(folder, part):
                        make_folder(part, folder, self._folder_mode)
                below = stack.enter_context(open_folder(part, within=folder))
            status, folder = os.fstat(below), below
            if status.st_uid not in (_ROOT_USER, os.geteuid()):
                theirs = f"it belongs to another user (uid {status.st_uid})"
                raise UnsafeFileError(errno.EPERM, theirs, part)
            mode = stat.S_IMODE(status.st_mode)
            right = mode & (~0o777 | self._folder_mode)
            if mode != right and status.st_uid == os.geteuid():  # of an older hpcflow
                os.fchmod(folder, right)
        return folder, last

    def _call(self, doing: str, name: str, do: Callable[[int], _T]) -> _T:
        what = f"{doing} {self.url_of(name)}"
        # Check the root without retries: it will not be mounted within a minute.
        with self._root(what) as root:
            return with_retries(
                lambda: self._once(what, lambda: do(root)),
                clock=self._clock,
                patience_s=self._patience_s,
            )

    @contextmanager
    def _root(self, doing: str) -> Iterator[int]:
        """Open the root of the store; check that it still exists when the block ends."""
        try:
            root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._require_root(doing)
            raise self._translated(error, doing) from error
        try:
            status = os.fstat(root)
            yield root
        except MissingObjectError:
            self._require_root(doing, status)  # else it may be the empty mount point
            raise
        finally:
            os.close(root)
        self._require_root(doing, status)

    def _require_root(self, doing: str, before: os.stat_result | None = None) -> None:
        """Raise if the root is missing, or was replaced: it would look like an empty store."""
        root = self._folder
        try:
            status = root.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise self._not_there(doing, root) from None
        except OSError as error:  # a stale handle, or the file server is down
            raise self._translated(error, doing) from error
        if not stat.S_ISDIR(status.st_mode):
            raise MirrorUnavailable(
                f"cannot {doing}: {root} is not a directory",
                next_action=f"see what it is: ls -ld {shell_word(root)}; or correct "
                "mirror.url in the site file or the config",
            )
        if before is not None and not os.path.samestat(before, status):
            raise self._not_there(doing, root)

    def _not_there(self, doing: str, folder: Path) -> MirrorUnavailable:
        return MirrorUnavailable(
            f"cannot {doing}: {folder} does not exist; is it mounted?",
            next_action="have it mounted; create it only if it never existed: "
            f"mkdir -p {shell_word(folder)}",
        )

    def _once(self, doing: str, do: Callable[[], _T]) -> _T:
        try:
            return do()
        except OSError as error:
            raise self._translated(error, doing) from error

    def _translated(self, error: OSError, doing: str) -> MirrorError:
        said = error.strerror or str(error)
        if isinstance(error, FileNotFoundError):
            return MissingObjectError(f"cannot {doing}: there is no such object")
        if isinstance(error, UnsafeFileError):
            return MirrorError(
                f"cannot {doing}: {error.filename}: {said}",
                next_action="hpcflow did not write it; see who did: ls -la "
                f"{shell_word(str(self._folder))}",
            )
        if isinstance(error, _LASTING):
            return MirrorError(
                f"cannot {doing}: {said}", next_action="see who may read and write there"
            )
        return MirrorUnavailable(
            f"cannot {doing}: {said}", next_action="nothing is lost, the mirror tries again"
        )


def _entries(root: int, name: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield name and entry of all in a folder of the store; nothing if it is missing."""
    with ExitStack() as stack:
        folder = root
        try:
            for part in name.split("/") if name else ():
                folder = stack.enter_context(open_folder(part, within=folder))
        except FileNotFoundError:
            return
        begin = f"{name}/" if name else ""
        with os.scandir(folder) as entries:
            for entry in entries:
                yield begin + entry.name, entry


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a folder; False if only another user may stat it, such as a file system
    that they mounted in the store."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except PermissionError:
        return False


@contextmanager
def _folder_of(root: int, name: str) -> Iterator[tuple[int, str]]:
    """Open the folder of an object; yield it and the file name. ``OSError`` passes through."""
    above, last = _parts(name)
    with ExitStack() as stack:
        folder = root
        for part in above:
            below = stack.enter_context(open_folder(part, within=folder))
            if folder != root:
                _require_one_owner(below, folder, part)
            folder = below
        yield folder, last


def _require_one_owner(descriptor: int, folder: int, name: str) -> None:
    """Refuse an entry of another owner than the folder that it is in.

    A user who can write to a folder can move another user's private file there. The owner's next
    restore would copy it into a run, and the mirror would publish it.
    """
    owner, of_folder = os.fstat(descriptor).st_uid, os.fstat(folder).st_uid
    if owner not in (of_folder, _ROOT_USER):
        raise UnsafeFileError(
            errno.EPERM,
            f"it and its folder belong to two users (uid {owner} and {of_folder})",
            name,
        )


def _has(folder: int, name: str) -> bool:
    """Return whether an open folder has an entry ``name``, even a broken link."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _parts(name: str) -> tuple[list[str], str]:
    """Return the folders of an object and its file name; refuse one that leads out of the store."""
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise UnsafeFileError(errno.EINVAL, "its name leads out of the store", name)
    return parts[:-1], parts[-1]


def _read(descriptor: int, begin: int, end: int) -> bytes:
    if end <= begin:
        return b""
    data = os.pread(descriptor, end - begin, begin)
    while begin + len(data) < end:  # a short read on a network file system, or truncated meanwhile
        more = os.pread(descriptor, end - begin - len(data), begin + len(data))
        if not more:
            break
        data += more
    return data
