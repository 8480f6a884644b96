"""Code snapshots: the code that a run executes in all its attempts, on scratch and in an archive.

::

    <scratch>/hpcflow/.code/<digest>/          shared by all runs of the same code
      files/                                   what the program executes; the job compares checksums
      index                                    checksum and name of each file
      <digest>.tar.gz                          the same files; each run has a hard link to it
    <run directory>/code/<digest>.tar.gz       a dotfile if it may hold secrets: never mirrored

The files are writable, because a program may copy them with their modes and change the copies.

``files/`` can be rebuilt from the archive in the run directory. The number of hard links of the
archive shows whether any run refers to a snapshot, in any home.

Functions that return, check or make a snapshot raise OSError if it cannot be read or written, or if
other users can write to it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import secrets
import stat
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from hpcflow.model.run import code_place, short_digest
from hpcflow.runtime.reading import read_file, require_safe_status
from hpcflow.storage.files import (
    FOLDER_MODE,
    LEFTOVER_S,
    fsync_folder,
    remove_leftovers,
    remove_readonly,
    write_new,
)
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runtime_copy import cached_sum, is_closed

#: A larger snapshot holds data, not code.
MAX_BYTES: Final = 100 << 20
MAX_FILES: Final = 10_000
#: A tar adds headers and padding to each file.
_MAX_TAR_BYTES: Final = MAX_BYTES + (MAX_FILES << 12)
_INDEX: Final = "index"
_FILES: Final = "files"
#: Exists if an archive was copied because its file system has no hard links.
_COPIED: Final = "copied"
#: A snapshot without a run is kept for this time: a run that uses it may just be starting.
_UNUSED_S: Final = LEFTOVER_S
_TRIES: Final = 3


class DamagedArchiveError(OSError):
    """An archive is damaged or unsafe; the text says why."""


@dataclass(frozen=True)
class CodeFile:
    """A file of a snapshot."""

    data: bytes
    is_executable: bool = False


@dataclass(frozen=True)
class CodeTree:
    """A snapshot in memory.

    Attributes:
        files: relative name with ``/`` -> file.
        links: relative name -> target of a symbolic link.
        is_private: whether it may hold secrets, so it must not be mirrored.
    """

    files: Mapping[str, CodeFile]
    links: Mapping[str, str]
    is_private: bool

    def index(self) -> bytes:
        """Return the index that the job compares; without comments, input of ``sha256sum -c``."""
        lines = [f"# d {name}" for name in sorted(self.folders())]
        lines += [f"# x {name}" for name in sorted(self.files) if self.files[name].is_executable]
        lines += [f"# l {name} -> {self.links[name]}" for name in sorted(self.links)]
        sums = {name: hashlib.sha256(file.data).hexdigest() for name, file in self.files.items()}
        lines += [f"{sums[name]}  {name}" for name in sorted(self.files)]
        return os.fsencode("".join(f"{line}\n" for line in lines))

    def folders(self) -> set[str]:
        """Return the names of all folders, with ``.`` for the root."""
        found = {"."}
        for name in (*self.files, *self.links):
            found.update(folders_above(name))
        return found

    @cached_property
    def digest(self) -> str:
        """Return the checksum of names, modes, links and contents, which names the snapshot."""
        return hashlib.sha256(self.index()).hexdigest()


def folders_above(name: str) -> Iterator[str]:
    """Yield the names of the folders that contain ``name``, except the root."""
    parts = name.split("/")[:-1]
    return ("/".join(parts[: end + 1]) for end in range(len(parts)))


def is_code_name(name: str) -> bool:
    """Return whether a snapshot may contain ``name``.

    It must stay below the root and be one printable line. ``sha256sum`` reads ``-`` as its input.
    """
    parts = name.split("/")
    is_below = {"", ".", ".."}.isdisjoint(parts)
    is_plain = name.isprintable() and "\\" not in name and " -> " not in name
    return is_below and is_plain and name != "-"


def pack(code: CodeTree) -> bytes:
    """Return ``code`` as a compressed tar file."""
    import gzip  # slow to import, and most commands need neither
    import tarfile

    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, file in sorted(code.files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(file.data), 0o700 if file.is_executable else 0o600
            tar.addfile(info, io.BytesIO(file.data))
        for name, target in sorted(code.links.items()):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


def unpack(archive: bytes, *, is_private: bool) -> CodeTree:
    """Return the snapshot in an untrusted archive.

    Raises:
        DamagedArchiveError: it is damaged or unsafe.
    """
    import tarfile

    files: dict[str, CodeFile] = {}
    links: dict[str, str] = {}
    unzip = zlib.decompressobj(wbits=31)
    try:
        data = unzip.decompress(archive, _MAX_TAR_BYTES)
        if not unzip.eof:
            raise DamagedArchiveError("it is truncated, or too large")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = member.name
                is_new = name not in files and name not in links
                if not (is_code_name(name) and is_new and len(files) + len(links) < MAX_FILES):
                    raise DamagedArchiveError(f"it has an unsafe name: {name[:200]!r}")
                if member.issym():
                    links[name] = member.linkname
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or member.issparse():
                    raise DamagedArchiveError(f"{name[:200]!r} is neither a file nor a link")
                files[name] = CodeFile(content.read(), bool(member.mode & 0o100))
    except (tarfile.TarError, zlib.error, ValueError, EOFError) as error:
        raise DamagedArchiveError(str(error)) from error
    code = CodeTree(files, links, is_private)
    if not code.folders().isdisjoint({*files, *links}):
        raise DamagedArchiveError("a file is below a file or a link")
    if not all(target and "\0" not in target and target.isprintable() for target in links.values()):
        raise DamagedArchiveError("a link has no target")
    return code


def archive_name(code: CodeTree) -> str:
    """Return the name of the archive of ``code``; a dotfile is not mirrored."""
    return _archive_names(code.digest)[code.is_private]


def _archive_names(digest: str) -> tuple[str, str]:
    name = f"{short_digest(digest)}.tar.gz"
    return name, f".{name}"


def read_archive(folder: Path, digest: str) -> CodeTree | None:
    """Return the snapshot whose archive is in ``folder``; None if it is missing or damaged."""
    for name in _archive_names(digest):
        with suppress(FileNotFoundError, DamagedArchiveError):
            archive = read_file(folder / name, _MAX_TAR_BYTES)
            code = unpack(archive, is_private=name.startswith("."))
            if code.digest == digest:
                return code
    return None


def add_code(target: Path, runs: Path, code: CodeTree) -> None:
    """Put ``code`` on scratch, if it is missing, and its archive into ``target``.

    Args:
        target: the folder ``code`` of a run.
        runs: the folder with all runs of a user.
    """
    digest = code.digest
    place = code_place(runs, digest)
    shared = place.parent
    with suppress(FileExistsError):
        shared.mkdir(mode=FOLDER_MODE)
    if not is_closed(shared):
        raise PermissionError(errno.EPERM, "other users can write to it", str(shared))
    archive = target / archive_name(code)
    for _ in range(_TRIES):
        is_new = not is_whole(place, digest)
        if is_new:
            _make(place, code)
        if _link(place, archive, code):
            if is_new:
                remove_unused(shared)
            return
    raise FileNotFoundError(errno.ENOENT, "another process keeps removing it", str(place))


def discard_code(runs: Path, code: CodeTree) -> None:
    """Remove ``code`` from scratch, unless a run refers to it."""
    place = code_place(runs, code.digest)
    with suppress(OSError):
        _remove_unused(place, 0.0)
    with suppress(OSError):
        place.parent.rmdir()  # fails if there is other code


def has_code(run_dir: RunDir, digest: str) -> bool:
    """Return whether a run's snapshot is complete and the run refers to it."""
    place = code_place(run_dir.path.parent.parent, digest)
    archives = (run_dir.code / name for name in _archive_names(digest))
    return is_whole(place, digest) and any(_refers(each, place) for each in archives)


def _refers(archive: Path, place: Path) -> bool:
    with suppress(FileNotFoundError):
        status = archive.lstat()
        return is_copied(place) or os.path.samestat(status, _archive_of(place).lstat())
    return False


def read_shared(run_dir: RunDir, digest: str) -> CodeTree | None:
    """Return the snapshot that other runs of the same code share; None without one."""
    code = read_archive(code_place(run_dir.path.parent.parent, digest), digest)
    return code and replace(code, is_private=True)  # it is not known whether it has secrets


def _link(place: Path, archive: Path, code: CodeTree) -> bool:
    """Hard-link or copy the archive of ``place``; return False if another process removed it."""
    source = _archive_of(place)
    half = archive.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        os.link(source, half)
    except FileNotFoundError:
        return False
    except OSError:  # no hard links, or too many of them
        (place / _COPIED).touch(mode=0o600)
        write_new(half, pack(code))
    half.replace(archive)
    half.unlink(missing_ok=True)  # rename() does nothing if both are links to one file
    return _refers(archive, place)


def is_copied(place: Path) -> bool:
    """Return whether an archive was copied, so hard links do not count the references."""
    return (place / _COPIED).exists()


def _archive_of(place: Path) -> Path:
    return place / f"{place.name}.tar.gz"


def is_whole(place: Path, digest: str) -> bool:
    """Return whether the snapshot in ``place`` is unchanged and only this user can write it."""
    try:
        index = read_file(place / _INDEX)
        if hashlib.sha256(index).hexdigest() != digest:
            return False
        require_safe_status(_archive_of(place).lstat(), _archive_of(place))
        return all(_is_as(place / _FILES, line) for line in os.fsdecode(index).splitlines())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_as(files: Path, line: str) -> bool:
    """Return whether the files match one line of the index."""
    if line.startswith("# d "):
        return is_closed(files / line[4:])
    if line.startswith("# x "):
        return bool((files / line[4:]).lstat().st_mode & stat.S_IXUSR)
    if line.startswith("# l "):
        name, _, target = line[4:].partition(" -> ")
        path = files / name
        return path.is_symlink() and os.readlink(path) == target  # noqa: PTH115 - compared as text
    checksum, _, name = line.partition("  ")
    return cached_sum(f"{files}/{name}") == checksum


def _make(place: Path, code: CodeTree) -> None:
    """Make the snapshot in ``place`` atomically; replace a damaged one."""
    half = place.parent / f".{place.name}.{secrets.token_hex(4)}.tmp"
    files = half / _FILES
    try:
        for name in sorted(code.folders()):
            (files / name).mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        for name, file in code.files.items():
            path = files / name
            path.write_bytes(file.data)
            path.chmod(0o700 if file.is_executable else 0o600)
        for name, target in code.links.items():
            (files / name).symlink_to(target)
        write_new(half / _INDEX, code.index())
        write_new(half / _archive_of(place).name, pack(code))
        fsync_folder(half)
        if os.path.lexists(place) and not is_whole(place, code.digest):
            aside = place.parent / f".{place.name}.{secrets.token_hex(4)}.tmp"
            place.rename(aside)
            if _has_more(aside, code.files):
                aside.rename(aside.with_suffix(".written"))
            else:
                remove_readonly(aside)
        half.rename(place)
        fsync_folder(place.parent)
    except OSError:
        remove_readonly(half)
        if not is_whole(place, code.digest):  # else another process was faster
            raise


def remove_unused(shared: Path) -> None:
    """Remove the snapshots that no run has referred to for a week."""
    remove_leftovers(shared)
    with suppress(OSError), os.scandir(shared) as entries:
        for entry in entries:
            with suppress(OSError):
                _remove_unused(Path(entry.path), _UNUSED_S)


def _remove_unused(place: Path, unused_s: float) -> None:
    """Remove an unused snapshot. Rename it first, so that no run starts to use it meanwhile."""
    is_hidden = place.name.startswith(".")
    if is_hidden or not _is_unused(place, place.name, unused_s) or _has_more(place):
        return
    aside = place.parent / f".{place.name}.{secrets.token_hex(4)}.tmp"
    place.rename(aside)
    if _is_unused(aside, place.name, 0.0):
        remove_readonly(aside)
    else:
        aside.rename(place)


def _is_unused(place: Path, name: str, unused_s: float) -> bool:
    status = (place / f"{name}.tar.gz").lstat()
    is_old = time.time() - status.st_ctime >= unused_s  # ctime changes with the number of links
    return status.st_nlink == 1 and is_old and not is_copied(place)


def _has_more(place: Path, names: Collection[str] | None = None) -> bool:
    """Return whether a program added files to the snapshot; hpcflow keeps them."""
    if names is None:
        try:
            lines = os.fsdecode(read_file(place / _INDEX)).splitlines()
        except FileNotFoundError:
            return False  # it was never complete
        names = {line.partition("  ")[2] for line in lines}
    files = place / _FILES
    for folder, _, found in os.walk(files):
        written = [Path(folder, each) for each in found if Path(folder).name != "__pycache__"]
        if any(
            not (each.is_symlink() or str(each.relative_to(files)) in names) for each in written
        ):
            return True
    return False
