"""The copy of ``hpcflow.runtime`` in a run directory, for jobs without an installed hpcflow.

The files are hard links to one read-only copy of each version in
``<scratch>/hpcflow/.runtime/<digest>/``. Links need no blocks and no fsync, and a run keeps its
files if that folder or another run is deleted. If links do not work (another owner, a file system
without them), the files are copied.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

import hpcflow
from hpcflow.runtime.reading import read_file
from hpcflow.storage.files import FOLDER_MODE, fsync_folder, make_folders, write_new

_READ_ONLY = 0o400
#: The folder of compiled files; see :func:`compiled_sum`.
_COMPILED = "__pycache__"

#: ``__init__.py`` of the copy. The copy comes first on PYTHONPATH, and would hide an hpcflow
#: installed in the job's Python: `hpcflow run` in a pipeline would fail. The importer gets the
#: module that is in sys.modules after this file was executed.
_STAND_IN = '''"""Stand-in for hpcflow inside a job: the runtime alone."""

import os
import sys


def _step_aside():
    """Replace the copy by a complete hpcflow of this version, if this Python has one."""
    path = [entry for entry in sys.path if not _is_copy(entry)]
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find("hpcflow", path) if find is not None else None
        places = spec.submodule_search_locations if spec is not None else None
        if not places or not os.path.isdir(os.path.join(list(places)[0], "launch")):
            continue
        from importlib.util import module_from_spec  # slow to import, and most jobs do not need it

        copy, whole = sys.modules["hpcflow"], module_from_spec(spec)
        sys.modules["hpcflow"] = whole
        try:
            spec.loader.exec_module(whole)
        except Exception:  # the installed one is broken: the job uses the copy
            whole = None
        if getattr(whole, "__version__", None) != __version__:
            sys.modules["hpcflow"] = copy
        return


def _is_copy(entry):
    package = os.path.join(entry or ".", "hpcflow")
    return os.path.isdir(package) and not os.path.isdir(os.path.join(package, "launch"))
'''


@lru_cache(maxsize=1)
def _installed() -> tuple[str, dict[str, bytes]]:
    """Return digest and files of the installed version: name below ``hpcflow/`` -> bytes."""
    package = Path(hpcflow.__file__).parent
    paths = sorted((package / "runtime").rglob("*.py"))
    files = {"__init__.py": _stand_in()}
    files |= {path.relative_to(package).as_posix(): path.read_bytes() for path in paths}
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:20], files


def _stand_in() -> bytes:
    return f"{_STAND_IN}\n\n__version__ = {hpcflow.__version__!r}\n_step_aside()\n".encode()


def add_runtime(target: Path, shared: Path, undo: list[Callable[[], object]]) -> None:
    """Put the installed runtime into the empty folder ``target``. Raise OSError.

    Args:
        target: the folder for the job's PYTHONPATH; will contain ``hpcflow/``.
        shared: folder of the shared copies, on the same file system.
        undo: receives functions that remove what was made in ``shared``. Runs that already link to
            it keep their files.
    """
    digest, files = _installed()
    # Text is faster than Paths: a thousand runs at once are fifty thousand of these links.
    below = f"{target}/hpcflow"
    for folder in sorted({name.rpartition("/")[0] for name in files}):
        Path(below, folder).mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    source = _shared_copy(shared, digest, files, undo)
    for name, data in files.items():
        path = f"{below}/{name}"
        try:
            if source is None:
                write_new(Path(path), data)
            else:
                os.link(f"{source}/{name}", path)
        except OSError:
            if Path(path).exists():
                raise
            write_new(Path(path), data)


@lru_cache(maxsize=1)
def installed_sum() -> str:
    """Return the checksum of the files that :func:`add_runtime` writes."""
    files = _installed()[1].items()
    return _sum_of({f"hpcflow/{name}": hashlib.sha256(data).hexdigest() for name, data in files})


def runtime_sum(target: Path) -> str:
    """Return the checksum of all files in ``target``; empty if it is missing.

    The job script computes the same with sha256sum: ``templates/parts/runtime.j2``.

    Raises:
        OSError: it cannot be read; UnsafeFileError: it has a link, or another user's file.
    """
    return _sum_of(dict(_sums_below(str(target), ""))) if target.is_dir() else ""


def _sums_below(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield name and checksum of each file in ``folder``, without compiled files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield prefix + entry.name, cached_sum(entry.path)
            elif entry.name != _COMPILED:
                yield from _sums_below(entry.path, f"{prefix}{entry.name}/")


def compiled_sum(target: Path) -> str:
    """Return a checksum of the state of the compiled files in ``target``; empty if another user
    could have written one.

    The state is the name, inode, size and ctime, which only the kernel sets. The job script
    compares it: ``templates/parts/runtime.j2``. Without these files, Python would compile the
    runtime in each attempt.
    """
    lines = []
    for name, status in _compiled_below(str(target), "") if target.is_dir() else ():
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if not (stat.S_ISREG(status.st_mode) and is_ours):
            return ""
        changed_s = status.st_ctime_ns // 1_000_000_000
        lines.append(f"{name} {status.st_ino} {status.st_size} {changed_s}\n")
    return hashlib.sha256(b"".join(sorted(map(os.fsencode, lines)))).hexdigest()


def _compiled_below(folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _compiled_below(entry.path, f"{prefix}{entry.name}/")
            elif prefix.endswith(f"{_COMPILED}/"):
                yield prefix + entry.name, entry.stat(follow_symlinks=False)


#: Device, inode, size and mtime of a file -> its checksum. A daemon submits a thousand attempts,
#: and all runs of one version share a few inodes.
_SUMS: dict[tuple[int, int, int, int], str] = {}


def cached_sum(path: str) -> str:
    """Return the checksum of a file that only this user can have written."""
    status = os.lstat(path)
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    is_known = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and key in _SUMS
    if not is_known:
        _SUMS[key] = hashlib.sha256(read_file(path)).hexdigest()
    return _SUMS[key]


def _sum_of(sums: Mapping[str, str]) -> str:
    lines = sorted(f"{each}  {name}\n" for name, each in sums.items())
    return hashlib.sha256(os.fsencode("".join(lines))).hexdigest() if sums else ""


def is_whole(target: Path) -> bool:
    """Return whether the copy in ``target`` has every file of the installed runtime."""
    return all((target / "hpcflow" / name).is_file() for name in _installed()[1])


def _shared_copy(
    shared: Path, digest: str, files: dict[str, bytes], undo: list[Callable[[], object]]
) -> Path | None:
    """Return the shared copy, made if missing; None if other users could write to it."""
    copy = shared / digest
    try:
        with suppress(FileExistsError):
            shared.mkdir(mode=FOLDER_MODE)
            undo.append(shared.rmdir)  # fails if other runs use it
        if not is_closed(shared):  # else another user could choose the code of our jobs
            return None
        if not copy.is_dir():
            _make_shared_copy(copy, files, undo)
        return copy if _is_the_installed(copy, copy.lstat().st_ctime_ns) else None
    except OSError:
        return None


@lru_cache(maxsize=8)
def _is_the_installed(copy: Path, _changed: int) -> bool:
    """Return whether a shared copy equals the installed runtime and only this user can write it.

    A process, which may create a thousand runs, reads it once. Each job checks its own files.
    """
    files = _installed()[1]
    folders = {copy / name.rpartition("/")[0] for name in files}
    return all(is_closed(each) for each in folders) and all(
        read_file(copy / name) == data for name, data in files.items()
    )


def is_closed(folder: Path) -> bool:
    """Return whether ``folder`` is a directory of this user in which no other user can write."""
    status = folder.lstat()
    is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return stat.S_ISDIR(status.st_mode) and is_ours


def _make_shared_copy(
    copy: Path, files: dict[str, bytes], undo: list[Callable[[], object]]
) -> None:
    half = copy.parent / f".{copy.name}.{secrets.token_hex(4)}.tmp"
    try:
        for name, data in files.items():
            path = half / name
            make_folders(path.parent)
            write_new(path, data)
            path.chmod(_READ_ONLY)
        fsync_folder(half)
        half.rename(copy)
        undo.append(partial(shutil.rmtree, copy))
    except OSError:
        shutil.rmtree(half, ignore_errors=True)
        if not copy.is_dir():  # else another process was faster
            raise
