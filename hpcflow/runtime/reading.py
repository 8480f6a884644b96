"""Open and read files safely. Each file that this process did not just write is untrusted.

On shared scratch a path may be a link to another place, a pipe that never answers, an endless
device, another user's file, or a file of gigabytes. Each of these raises
:class:`UnsafeFileError`, an ``OSError``, before a byte is read.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

#: The default limit of :func:`read_file`.
MAX_FILE_BYTES = 64 << 20

#: The default limit of :func:`read_json`: parsed, hostile JSON takes twenty times its size.
MAX_JSON_BYTES = 16 << 20

#: The limit of a `run.json` in a store. A mirror reads several at once; each may be hostile.
MAX_RUN_JSON_BYTES = 4 << 20

#: The default limit of :func:`read_lines`: twelve days of events at a kilobyte a second.
MAX_LINES_FILE_BYTES = 1 << 30

#: The limit for a file of a word or two, such as a claim.
MAX_WORD_BYTES = 1 << 12

#: hpcflow writes no longer lines.
MAX_LINE_BYTES = 1 << 20

_ROOT = 0
#: The limit of Linux itself.
_MOST_LINKS = 40
_MORE_BYTES = 1 << 16


class UnsafeFileError(OSError):
    """A file is a link, not a regular file, another user's, or too large; the text says which."""


class JsonError(ValueError):
    """A file or a line is not the expected JSON; the text says why."""


def open_regular(
    path: Path | str,
    *,
    max_bytes: int | None = None,
    follow: bool = False,
    any_owner: bool = False,
    within: int | None = None,
) -> int:
    """Open a regular file for reading and return its descriptor. ``OSError`` passes through.

    Args:
        within: the open directory in which a relative ``path`` begins. No part of it may be a link.
        max_bytes: refuse a larger file; None for no limit.
        follow: accept a link as the last part of ``path``, for a file that the user names.
        any_owner: accept files of all users, not only of this user and root.

    Raises:
        UnsafeFileError: the file is not acceptable.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    folder, _, name = str(path).rpartition("/") if within is not None else ("", "", path)
    at = open_below(within, folder) if within is not None and folder else within
    try:
        descriptor = os.open(name, flags if follow else flags | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _unsafe(path, "it is a symbolic link") from None
        if error.errno == errno.ENXIO:  # a socket
            raise _unsafe(path, "it is not a regular file") from None
        raise
    finally:
        if at is not None and at != within:
            os.close(at)
    try:
        require_safe(descriptor, path, max_bytes=max_bytes, any_owner=any_owner)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_safe(
    descriptor: int, path: Path | str, *, max_bytes: int | None = None, any_owner: bool = False
) -> os.stat_result:
    """Check an open file as :func:`open_regular` does, and return its status.

    Raises:
        UnsafeFileError: the file is not acceptable.
    """
    status = os.fstat(descriptor)
    require_safe_status(status, path, max_bytes=max_bytes, any_owner=any_owner)
    return status


def require_safe_status(
    status: os.stat_result,
    path: Path | str,
    *,
    max_bytes: int | None = None,
    any_owner: bool = False,
) -> None:
    """Check the ``lstat`` status of a file as :func:`open_regular` does.

    Raises:
        UnsafeFileError: the file is not acceptable.
    """
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(path, "it is not a regular file")
    if not any_owner:
        require_own(status, path)
    if max_bytes is not None and status.st_size > max_bytes:
        raise _unsafe(path, f"it has {status.st_size} bytes; the limit is {max_bytes} bytes")


def require_own(status: os.stat_result, path: Path | str) -> None:
    """Check that a file or folder belongs to this user or root.

    Raises:
        UnsafeFileError: it does not.
    """
    if status.st_uid not in (_ROOT, os.geteuid()):
        raise _unsafe(path, f"it belongs to another user (uid {status.st_uid})")


def require_no_strange_link(path: Path) -> None:
    """Refuse a path that contains a link of another user which is not trusted.

    A link is trusted if its owner also owns its folder and its target. Any other target may be
    private to this user, or hold private files.

    Raises:
        UnsafeFileError: there is one.
    """
    try:
        os.close(_open_place(path))
    except UnsafeFileError:
        raise
    except OSError:
        return  # it does not exist yet, or cannot be read


@contextmanager
def opened_place(folder: Path) -> Iterator[int]:
    """Open a folder whose path other users may change; yield its descriptor (``O_PATH``).

    Raises:
        OSError: it does not exist; an :class:`UnsafeFileError` as for
            :func:`require_no_strange_link`.
    """
    place = _open_place(folder)
    try:
        yield place
    finally:
        os.close(place)


def _open_place(path: Path) -> int:
    """Open each part of ``path`` within the part before: what was checked is what is opened."""
    with suppress(OSError):
        path.stat()  # triggers an automount, which O_PATH does not
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    at, shown = os.open("/", flags), ""
    ahead, links = list(reversed(path.parts[1:])), 0
    #: Parts still ahead at the end of another user's link -> the link and its owner.
    strange: dict[int, tuple[str, int]] = {}
    try:
        while ahead:
            name = ahead.pop()
            child = os.open(name, flags, dir_fd=at)
            try:
                status = os.fstat(child)
                if not stat.S_ISLNK(status.st_mode):
                    at, child = child, at
                    shown = shown.rpartition("/")[0] if name == ".." else f"{shown}/{name}"
                    _require_theirs(strange.pop(len(ahead), None), status, shown)
                    continue
                if status.st_uid not in (_ROOT, os.geteuid()):
                    if status.st_uid != os.fstat(at).st_uid:
                        raise _strange(f"{shown}/{name}", status.st_uid)
                    strange[len(ahead)] = f"{shown}/{name}", status.st_uid
                target = Path(os.readlink("", dir_fd=child))
            finally:
                os.close(child)
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if target.is_absolute():
                os.close(at)
                at, shown = os.open("/", flags), ""
            parts = target.parts[1:] if target.is_absolute() else target.parts
            if not parts:  # a link to / or .
                _require_theirs(strange.pop(len(ahead), None), os.fstat(at), shown or "/")
            ahead.extend(reversed(parts))
    except BaseException:
        os.close(at)
        raise
    return at


def _require_theirs(link: tuple[str, int] | None, target: os.stat_result, shown: str) -> None:
    if link is not None and target.st_uid != link[1]:
        raise _strange(*link, f" to {shown}, which is not theirs; name that folder instead")


def _strange(link: str, uid: int, to: str = "") -> UnsafeFileError:
    return _unsafe(link, f"it is a link of another user (uid {uid}){to}")


def open_below(within: int, name: str) -> int:
    """Open the folder ``name`` (``a/b``) in an open one; no part of it may be a link.

    Raises:
        OSError: the folder does not exist, or is not a folder.
    """
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise _unsafe(name, "it is not a name in this folder")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = within
    for part in parts:
        try:
            below = os.open(part, flags, dir_fd=at)
        finally:
            if at != within:
                os.close(at)
        at = below
    return at


def open_file(
    path: Path | str,
    *,
    max_bytes: int | None = None,
    follow: bool = False,
    any_owner: bool = False,
    within: int | None = None,
) -> BinaryIO:
    """Open a regular file for reading, with the checks of :func:`open_regular`."""
    descriptor = open_regular(
        path, max_bytes=max_bytes, follow=follow, any_owner=any_owner, within=within
    )
    return os.fdopen(descriptor, "rb")


def read_file(
    path: Path | str,
    max_bytes: int = MAX_FILE_BYTES,
    *,
    follow: bool = False,
    any_owner: bool = False,
) -> bytes:
    """Return the content of a regular file, with the checks of :func:`open_regular`."""
    # Without a file object, whose buffer would be as large as the limit: hpcflow may read 100,000
    # manifests in a row.
    descriptor = open_regular(path, max_bytes=max_bytes, follow=follow, any_owner=any_owner)
    try:
        pieces, left, at_once = [], max_bytes + 1, os.fstat(descriptor).st_size + 1
        while left and (piece := os.read(descriptor, min(left, at_once))):
            pieces.append(piece)
            left, at_once = left - len(piece), _MORE_BYTES
    finally:
        os.close(descriptor)
    data = b"".join(pieces)
    if len(data) > max_bytes:  # it has grown since it was opened
        raise _unsafe(path, f"it has more than {max_bytes} bytes, the limit")
    return data


def read_lines(
    path: Path | str,
    max_bytes: int = MAX_LINES_FILE_BYTES,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    any_owner: bool = False,
) -> Iterator[bytes]:
    """Yield the complete lines of a regular file, without their ends, in bounded memory.

    A last line without its end is torn or being written, and is left out. A line of more than
    ``max_line_bytes`` is cut to one byte more, so that the reader can reject it.

    Raises:
        OSError: as :func:`open_regular` raises, when the first line is requested.
    """
    with open_file(path, max_bytes=max_bytes, any_owner=any_owner) as file:
        while line := file.readline(max_line_bytes + 2):
            if line.endswith(b"\n"):
                yield line[:-1]
                continue
            if len(line) < max_line_bytes + 2:
                return
            while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            if not rest:
                return
            yield line[:-1]


def read_json(path: Path | str, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the value in a JSON file, opened with the checks of :func:`open_regular`.

    Raises:
        OSError: the file cannot be read; an :class:`UnsafeFileError` if it is unsafe.
        JsonError: the file is not JSON.
    """
    return parse_json(read_file(path, max_bytes))


def parse_json(data: bytes | str) -> Any:
    """Parse untrusted JSON. NaN and infinities are accepted: params may contain them.

    Raises:
        JsonError: not JSON, not UTF-8, nested too deeply, or a number with too many digits.
    """
    try:
        return json.loads(data.decode() if isinstance(data, bytes) else data)
    except ValueError as error:
        raise JsonError(f"it is not JSON: {error}") from None
    except RecursionError:
        raise JsonError("its JSON is nested too deeply") from None


def read_object(path: Path | str, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file. Most JSON files of hpcflow hold one."""
    return parse_object(read_file(path, max_bytes))


def parse_object(data: bytes | str) -> dict[str, Any]:
    """Parse untrusted JSON that must be an object, as every line and most files of hpcflow are.

    Raises:
        JsonError: not JSON, or not an object.
    """
    value = parse_json(data)
    if not isinstance(value, dict):
        raise JsonError("it is not a JSON object")
    return value


def _unsafe(path: Path | str, reason: str) -> UnsafeFileError:
    return UnsafeFileError(errno.EINVAL, reason, str(path))
