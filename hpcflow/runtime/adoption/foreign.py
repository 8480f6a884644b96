"""Find the checkpoints that the program has written: names, train steps, and changes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from hpcflow.runtime import reading
from hpcflow.runtime.adoption.rule import BY_COUNT, BY_NAME, AdoptRule
from hpcflow.runtime.reading import (
    JsonError,
    open_below,
    opened_place,
    require_no_strange_link,
    require_own,
)

#: Names that programs use until they rename a finished checkpoint.
_UNFINISHED = re.compile(r"(^|[._-])(tmp|temp|part|partial|incomplete)([._-]|\d|$)|~$", re.I)
_AFTER_STEP = re.compile(r"step[ =_.-]*(\d+)", re.I | re.ASCII)
#: Not a part of a number such as 0.32.
_WHOLE_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)\d+(?!\d)(?!\.\d)", re.ASCII)
#: The suffix of a name: .ckpt, and the -v1 that Lightning adds if a name is in use.
_SUFFIX = re.compile(r"(-v\d+)?(\.[A-Za-z][A-Za-z0-9]*)?\Z", re.ASCII)
_MAX_DIGITS = 18
#: Functions that copy, sync and read checkpoints recurse for each folder.
_MAX_DEPTH = 100


@dataclass(frozen=True)
class Foreign:
    """A file or folder of the program with the name of a checkpoint.

    Attributes:
        name: its path below the rule's folder.
        state: a fingerprint that changes with every change of a file in it.
        changed_ns: the latest change of a file in it, in ns since 1970.
        size_bytes: the size of all files in it.
        is_empty: whether it has no files.
    """

    path: Path
    name: str
    state: str
    changed_ns: int
    size_bytes: int
    is_empty: bool


def find(rule: AdoptRule, warn: Callable[[str], object]) -> list[Path]:
    """Return the paths that match the rule; none if the folder does not exist.

    Args:
        warn: called for each folder that is skipped because of another user's link.

    Raises:
        OSError: a link of another user leads to the rule's folder.
    """
    require_no_strange_link(rule.folder)
    found = sorted(_matches(rule.folder, rule.pattern.split("/")))
    left_out = set()
    for folder in {path.parent for path in found} - {rule.folder}:
        try:
            require_no_strange_link(folder)
        except OSError as error:  # noqa: PERF203 - go on with the other folders
            left_out.add(folder)
            warn(f"not adopted: {error}")
    return [path for path in found if path.parent not in left_out]


def is_named(name: str, rule: AdoptRule) -> bool:
    """Return whether :func:`find` could find ``name``, a path below the rule's folder."""
    parts, patterns = name.split("/"), rule.pattern.split("/")
    if len(parts) != len(patterns) or "\0" in name or _UNFINISHED.search(parts[-1]):
        return False
    return all(map(_fits, parts, patterns))


def look(path: Path, rule: AdoptRule) -> Foreign:
    """Return the facts about ``path``, without reading a file.

    Raises:
        OSError: it is gone, or holds an entry that is neither a plain file nor a folder.
    """
    digest = hashlib.sha256()
    changed_ns, files, total_bytes = 0, 0, 0
    for name, status in statuses(path):
        # Hard links, which hpcflow makes with `renamed`, change the ctime.
        ctime_ns = 0 if rule.renamed else status.st_ctime_ns
        is_file = S_ISREG(status.st_mode)
        size_bytes = status.st_size if is_file else 0
        files += is_file
        total_bytes += size_bytes
        facts = (status.st_ino, size_bytes, status.st_mtime_ns, ctime_ns)
        digest.update(os.fsencode(name) + b"\0" + repr(facts).encode())
        changed_ns = max(changed_ns, status.st_mtime_ns)
    name = path.relative_to(rule.folder).as_posix()
    return Foreign(path, name, digest.hexdigest(), changed_ns, total_bytes, is_empty=not files)


def train_step_of(path: Path, rule: AdoptRule) -> int | None:
    """Return the train step of the checkpoint at ``path``; None if it has none.

    Raises:
        OSError: the file with the train step cannot be read.
        ValueError: the file has no train step.
    """
    if rule.train_step == BY_COUNT:
        return None
    if rule.train_step == BY_NAME:
        return number_in(path.name)
    file, _, key = rule.train_step.partition(":")
    value = read_json(path / file)
    number = value.get(key) if isinstance(value, dict) else None
    if type(number) is not int or not 0 <= number < 10**_MAX_DIGITS:
        raise ValueError(f"{path / file} has no train step under {key!r}")
    return number


def number_in(name: str) -> int | None:
    """Return the number after ``step`` in a file's name, else the last whole number in it.

    ``checkpoint-500`` is 500, ``epoch=3-step=100-v1.ckpt`` 100, ``epoch=2-loss=0.32.ckpt`` 2.
    """
    stem = _SUFFIX.sub("", name, count=1)
    numbers = _AFTER_STEP.findall(stem) or _WHOLE_NUMBER.findall(stem)[-1:]
    if not numbers or len(numbers[-1]) > _MAX_DIGITS:
        return None
    return int(numbers[-1])


def read_json(path: Path) -> object:
    """Return the value in a JSON file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON, or incomplete.
    """
    try:
        return reading.read_json(path, reading.MAX_FILE_BYTES)  # those of Hugging Face grow
    except JsonError as error:
        raise ValueError(f"{path}: {error}") from None


def _matches(folder: Path, parts: list[str]) -> Iterator[Path]:
    part, rest = parts[0], parts[1:]
    if _is_glob(part):
        paths = _matching(folder, part)
    else:
        # Without listing the folder, which may have a million files; it may be a link.
        is_link = os.path.islink(str(folder / part))  # noqa: PTH114 - it raises nothing
        paths = [] if is_link and not rest else [folder / part]
    for path in paths:
        if rest:
            yield from _matches(path, rest)
        elif os.path.lexists(str(path)) and not _UNFINISHED.search(path.name):
            yield path


def _is_glob(pattern: str) -> bool:
    return any(sign in pattern for sign in "*?[")


def _fits(part: str, pattern: str) -> bool:
    if _is_glob(pattern):
        return fnmatchcase(part, pattern) and part != "" and not part.startswith(".")
    return part == pattern


def _matching(folder: Path, pattern: str) -> list[Path]:
    try:
        with os.scandir(str(folder)) as entries:
            names = [
                entry.name
                for entry in entries
                if _fits(entry.name, pattern) and not entry.is_symlink()
            ]
    except OSError:
        return []
    return [folder / name for name in names]


def statuses(path: Path) -> list[tuple[str, os.stat_result]]:
    """Return name and status of ``path`` and all entries below it, in order.

    Raises:
        OSError: a link of another user leads there; or an entry is neither a plain file nor a
            folder, belongs to another user, or is too deep.
    """
    with opened_place(path.parent) as place:
        return list(statuses_in(place, path))


def statuses_in(place: int, path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the same for ``path`` in its open folder ``place``, without following links."""
    todo = [("", os.stat(path.name, dir_fd=place, follow_symlinks=False))]
    while todo:
        name, status = todo.pop()
        if not (S_ISDIR(status.st_mode) or S_ISREG(status.st_mode)):
            raise OSError(f"{path}{name} is neither a plain file nor a folder")
        require_own(status, f"{path}{name}")  # the program would load it
        yield name, status
        if S_ISDIR(status.st_mode):
            if name.count("/") >= _MAX_DEPTH:
                raise OSError(f"{f'{path}{name}'[:200]}… is more than {_MAX_DEPTH} folders deep")
            folder = open_below(place, path.name + name)
            try:
                todo += [
                    (f"{name}/{inner}", os.stat(inner, dir_fd=folder, follow_symlinks=False))
                    for inner in sorted(os.listdir(folder), reverse=True)  # noqa: PTH208 - a descriptor
                ]
            finally:
                os.close(folder)
