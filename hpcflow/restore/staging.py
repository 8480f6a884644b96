"""A hidden directory beside the run directory, for files until all are fetched.

::

    <project>/.<run_id>.restore/run/     a new run directory, or the missing parts of one
      checkpoints/000000400/  …          kept from one try to the next, file by file

Its name is always the same, so that a killed restore can continue: files of a checkpoint that match
the manifest are not fetched again. All other files are small, and are fetched again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from hpcflow.errors import DamagedError, MissingObjectError, ScratchError, StorageError
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.layout import MANIFEST
from hpcflow.model.units import format_bytes
from hpcflow.restore.objects import is_too_large
from hpcflow.restore.remote_run import RemoteCheckpoint, RemoteFile, RemoteRun
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import remove_tree, sync_folders
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.disk_space import look
from hpcflow.storage.files import FOLDER_MODE, write_durably
from hpcflow.storage.layout import RunDir
from hpcflow.storage.lustre import set_layout

#: A small file may grow in the store between listing and download.
_TRIES: Final = 3
_AT_ONCE: Final = 10_000
_CHECKPOINTS: Final = RunDir(Path()).checkpoints.name


@contextmanager
def staging(run_dir: RunDir, user: str) -> Iterator[Staging]:
    """Open the hidden folder of a run, for one process at a time.

    Args:
        user: whose quota counts.

    Raises:
        StorageError: it cannot be made, or another process uses it (``retryable``).
    """
    folder = run_dir.restore
    with storage_errors("make", folder):
        with suppress(FileExistsError):
            folder.mkdir(mode=FOLDER_MODE)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _lock(descriptor, run_dir)
        yield Staging(folder, user)
    finally:
        os.close(descriptor)


class Staging:
    """The hidden folder; ``run`` in it becomes the run directory."""

    def __init__(self, folder: Path, user: str) -> None:
        self._folder, self._user = folder, user
        self.run = folder / "run"
        with storage_errors("write in", folder):
            _own_folder(self.run)
            for path in self.run.iterdir():
                if path.name != _CHECKPOINTS:
                    _remove(path)
            checkpoints = _own_folder(self.run / _CHECKPOINTS)
            set_layout(checkpoints)  # a renamed file keeps its layout
            for path in checkpoints.iterdir():
                _own_folder(path)

    def fetch_small(
        self, remote: RemoteRun, names: Iterable[str], on_bytes: Callable[[int], object]
    ) -> None:
        sizes = {name: remote.entry(name).size_bytes for name in names}
        self._require_room(sizes)
        todo = iter(sizes.items())
        while some := dict(islice(todo, _AT_ONCE)):
            self._fetch_some(remote, some, on_bytes)

    def _fetch_some(
        self, remote: RemoteRun, todo: dict[str, int], on_bytes: Callable[[int], object]
    ) -> None:
        """Fetch a batch, so that a million objects do not fill the memory."""
        for tries_left in reversed(range(_TRIES)):
            self._require_room(todo)
            wanted = [Wanted(remote.name(n), self.run / n, size) for n, size in todo.items()]
            try:
                download(remote.remote, wanted, on_bytes=on_bytes)
                return
            except DamagedError:  # a file has grown since
                if not tries_left:
                    raise
            for name in todo:
                (self.run / name).unlink(missing_ok=True)
                entry = remote.remote.stat(remote.name(name))
                todo[name] = entry.size_bytes if entry is not None else todo[name]
                if is_too_large(name, todo[name]):
                    raise remote.too_large(name)

    def fetch_checkpoint(
        self,
        remote: RemoteRun,
        checkpoint: RemoteCheckpoint,
        on_bytes: Callable[[int], object],
    ) -> Path:
        """Fetch the missing files of a checkpoint; return its folder, complete and synced.

        Raises:
            DamagedError, MissingObjectError: a file differs from the manifest, twice, or is
                missing; nothing of it is kept.
            MirrorError: the store failed; fetched files are kept for the next try.
        """
        name = f"{_CHECKPOINTS}/{checkpoint.train_step:09d}"
        folder = self.run / name

        def fetch(missing: Mapping[str, RemoteFile]) -> None:
            self._require_room({f"{name}/{n}": file.size_bytes for n, file in missing.items()})
            wanted = [
                Wanted(remote.name(f"{name}/{n}"), folder / n, file.size_bytes, file.sha256)
                for n, file in missing.items()
            ]
            download(remote.remote, wanted, on_bytes=on_bytes)

        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            try:
                fetch(_missing(folder, checkpoint.files, on_bytes))
            except DamagedError:  # maybe only damaged in transfer
                fetch(_missing(folder, checkpoint.files, lambda _: None))
            write_durably(folder / MANIFEST, checkpoint.manifest)
            sync_folders(folder)
        except (DamagedError, MissingObjectError):
            remove_tree(folder)
            raise
        except OSError as error:
            raise storage_error("write", folder, error) from error
        return folder

    def put(self, name: str, data: bytes) -> None:
        """Write a file of the new run directory."""
        path = self.run / name
        with storage_errors("make", path.parent):
            path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_durably(path, data)

    def keep_only(self, train_steps: Iterable[int]) -> None:
        """Delete other checkpoints that an earlier try fetched."""
        wanted = {f"{step:09d}" for step in train_steps}
        folder = self.run / _CHECKPOINTS
        for path in list(folder.iterdir()) if folder.is_dir() else []:
            if path.name not in wanted:
                _remove(path)

    def remove(self) -> None:
        remove_tree(self._folder)

    def _require_room(self, sizes: Mapping[str, int]) -> None:
        size_bytes = sum(sizes.values())
        space = look(self._folder, self._user)
        if space is not None and size_bytes > space.left_bytes:
            name = max(sizes, key=sizes.__getitem__)
            raise ScratchError(
                f"the restore needs {format_bytes(size_bytes)} (largest file: {name}, "
                f"{format_bytes(sizes[name])}), but {space.why} has room for "
                f"{format_bytes(space.left_bytes)} in {self._folder.parent}",
                next_action="make room: hpcflow scratch; then repeat the command",
            )


def _missing(
    folder: Path, files: Mapping[str, RemoteFile], on_bytes: Callable[[int], object]
) -> dict[str, RemoteFile]:
    """Return the ``files`` that are not intact in ``folder``; delete all other files there."""
    for root, folders, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(root, name)
            if path.relative_to(folder).as_posix() not in files:
                path.unlink()
        for name in folders:
            if Path(root, name).is_symlink():
                Path(root, name).unlink()
    missing = {}
    for name, file in files.items():
        path = folder / name
        if _is_whole(path, file):
            on_bytes(file.size_bytes)
            continue
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
        missing[name] = file
    return missing


def _is_whole(path: Path, file: RemoteFile) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size_bytes:
        return False
    if sha256_of(path, file.sha256) != file.sha256:
        return False
    with path.open("rb") as found:  # its writer may have been killed before the sync
        os.fsync(found.fileno())
    return True


def _own_folder(path: Path) -> Path:
    """Make ``path`` a folder; delete a link or file in its place."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink()


def _lock(descriptor: int, run_dir: RunDir) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        error = StorageError(
            f"another process is restoring {run_dir.path.name} right now",
            next_action="wait until it ends, then see: hpcflow show " + run_dir.path.name,
        )
        error.retryable = True
        raise error from None
    except OSError:
        return  # Lustre without locks: the lock of the home must suffice
