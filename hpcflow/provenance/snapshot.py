"""Take a snapshot of a run's code: files that git does not ignore, and links to what it ignores.

A program may need ignored files, such as data and compiled extensions beside its code. So the
snapshot has symbolic links to them. A file with the name of a secret file is a link too: hpcflow
does not copy it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import SpecError, Where, shell_word
from hpcflow.model.secret import secrets_in
from hpcflow.model.units import counted, format_bytes
from hpcflow.provenance.code_state import CodeState
from hpcflow.provenance.git import Repository, TooManyFilesError, find_repository, list_files
from hpcflow.provenance.redaction import SOURCES, is_secret_file
from hpcflow.runtime.reading import open_regular
from hpcflow.storage.code_snapshot import (
    MAX_BYTES,
    MAX_FILES,
    CodeFile,
    CodeTree,
    folders_above,
    is_code_name,
)

#: Ignored files that nothing loads: a link to each would make a new snapshot of the same code.
_NOT_LINKED: Final = re.compile(r".*\.(?:py[co]|log|out|err)|__pycache__|\.git|hpcflow-[0-9]+\.log")
_MAX_LINKS: Final = 1000
#: These folders are virtual and conda environments.
_ENVIRONMENT: Final = re.compile(r"(.+)/(?:pyvenv\.cfg|conda-meta/history)")
_MAX_NESTED: Final = 100
#: More is not searched for secrets: it takes a second for each four megabytes.
_MAX_SEARCHED_BYTES: Final = 20 << 20
_NAMED: Final = 5


@dataclass(frozen=True)
class Taken:
    """A snapshot that was taken, and not stored yet.

    Attributes:
        root: the copied folder; all names are relative to it.
        state: its git state; None if git was not queried.
    """

    tree: CodeTree
    root: Path
    warnings: tuple[str, ...] = ()
    state: CodeState | None = None

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all files and inner links; not of links out of the snapshot."""
        inner = (name for name, target in self.tree.links.items() if not target.startswith("/"))
        return frozenset((*self.tree.files, *inner))


@dataclass(frozen=True)
class _Found:
    """What a snapshot has: files and link targets by name, and how many links were left out."""

    files: dict[str, os.stat_result]
    links: dict[str, str]
    left_out: int


def take(folder: Path, *, excluded: Sequence[Path] = (), is_mirrored: bool) -> Taken:
    """Read the code in the work tree that holds ``folder``, or, without one, in ``folder``.

    Args:
        excluded: folders without code, such as HPCFLOW_HOME.
        is_mirrored: whether to search it for secrets, so that the mirror may have it.

    Raises:
        SpecError: it is too large.
        GitError: git does not list the files.
        OSError: a file cannot be read.
    """
    repository = find_repository(folder)
    root = repository.top if repository is not None else folder.resolve()
    try:
        found = _find(root, repository, excluded)
    except TooManyFilesError as error:
        raise _too_large(root, f"far more than {MAX_FILES} files") from error
    _require_size(root, found)
    key = hashlib.sha256(repr((str(root), is_mirrored)).encode())
    for name, status in found.files.items():
        identity = (name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
        key.update(repr(identity).encode("utf-8", "surrogateescape"))
    key.update(repr((found.links, found.left_out)).encode("utf-8", "surrogateescape"))
    return _read(root, found, key.hexdigest(), is_mirrored=is_mirrored)


#: The newest snapshot: a program that submits a thousand runs reads its code once.
_newest: dict[str, Taken] = {}


def _read(root: Path, found: _Found, key: str, *, is_mirrored: bool) -> Taken:
    if key in _newest:
        return _newest[key]
    files = {}
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name, status in found.files.items():
            with suppress(FileNotFoundError):
                descriptor = open_regular(name, within=top, any_owner=True, max_bytes=MAX_BYTES)
                with os.fdopen(descriptor, "rb") as file:
                    files[name] = CodeFile(file.read(), bool(status.st_mode & stat.S_IXUSR))
    finally:
        os.close(top)
    warnings = list(_secret_warnings(files)) if is_mirrored else []
    is_private = bool(warnings) or not is_mirrored
    if found.left_out:
        warnings.append(
            f"the code snapshot has no links to {counted(found.left_out, 'file')} that git ignores "
            f"in {root}, because it has at most {_MAX_LINKS}; if the program needs these files, "
            "let git ignore their folder: that needs one link"
        )
    taken = Taken(CodeTree(files, found.links, is_private), root, tuple(warnings))
    _newest.clear()
    _newest[key] = taken
    return taken


def _find(root: Path, repository: Repository | None, excluded: Sequence[Path]) -> _Found:
    files: dict[str, os.stat_result] = {}
    links: dict[str, str] = {}
    waiting, repositories, left_out = [""], 0, 0
    without = [each.resolve() for each in excluded]
    while waiting:
        prefix = waiting.pop()
        folder = root / prefix
        if prefix:
            repository = find_repository(folder)
            if repository is not None and repository.top != folder.resolve():
                repository = None  # a submodule that is not there
        listing = list_files(folder, repository)
        names = [prefix + name.rstrip("/") for name in listing.files]
        ignored = [prefix + name.rstrip("/") for name in listing.ignored]
        environments = {each[1] for name in names if (each := _ENVIRONMENT.fullmatch(name))}
        ignored += sorted(environments)
        for name in names:
            path = root / name
            if _is_below_any(Path(name), map(Path, environments)) or _is_below_any(path, without):
                continue
            try:
                status = path.lstat()
            except OSError:
                continue  # deleted, and not committed
            if not is_code_name(name) or any(
                (root / each).is_symlink() for each in folders_above(name)
            ):
                continue
            if stat.S_ISDIR(status.st_mode):
                repositories += 1
                if repositories <= _MAX_NESTED:
                    waiting.append(f"{name}/")
            elif stat.S_ISLNK(status.st_mode):
                links[name] = _target(root, path)
            elif is_secret_file(name):
                links[name] = str(path)
            elif stat.S_ISREG(status.st_mode):
                files[name] = status
        linked = [
            name
            for name in ignored
            if not _NOT_LINKED.fullmatch(Path(name).name)
            and is_code_name(name)
            and not any(_overlap(root / name, each) for each in without)
        ]
        left_out += len(linked[_MAX_LINKS:])
        links.update((name, str(root / name)) for name in linked[:_MAX_LINKS])
    printable = {name: target for name, target in links.items() if target.isprintable()}
    return _Found(dict(sorted(files.items())), dict(sorted(printable.items())), left_out)


def _is_below_any(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _target(root: Path, path: Path) -> str:
    """Return the target of a link, for a link at the same place in the snapshot."""
    full = Path(os.path.normpath(path.parent / path.readlink()))
    real = Path(os.path.realpath(full.parent)) / full.name
    return os.path.relpath(real, path.parent) if real.is_relative_to(root) else str(full)


def _require_size(root: Path, found: _Found) -> None:
    sizes = {name: status.st_size for name, status in found.files.items()}
    number = len(found.files) + len(found.links)
    size = f"{counted(number, 'file')} with {format_bytes(sum(sizes.values()))}"
    if number > MAX_FILES:
        below = Counter(name.partition("/")[0] for name in (*sizes, *found.links) if "/" in name)
        most = ", ".join(f"{name} ({count})" for name, count in below.most_common(_NAMED))
        raise _too_large(root, f"{size}. Most are in: {most or root}")
    if sum(sizes.values()) > MAX_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:_NAMED]
        named = ", ".join(f"{name} ({format_bytes(sizes[name])})" for name in largest)
        raise _too_large(root, f"{size}. The largest: {named}")


def _too_large(root: Path, size: str) -> SpecError:
    return SpecError(
        f"the code in {root} is too large for a snapshot, which has at most {MAX_FILES} files and "
        f"{format_bytes(MAX_BYTES)}: {size}",
        where=Where(key="code"),
        next_action=f"name what is not code in {shell_word(root / '.gitignore')} (files that git "
        "tracks also need `git rm --cached`); or write `code: live`: each attempt then reads the "
        "code when it starts",
    )


def _secret_warnings(files: dict[str, CodeFile]) -> Iterator[str]:
    """Yield a warning if the snapshot is not mirrored, and why."""
    warning = "the snapshot of the code is not mirrored: "
    if sum(len(file.data) for file in files.values()) > _MAX_SEARCHED_BYTES:
        yield f"{warning}it has more than {format_bytes(_MAX_SEARCHED_BYTES)} to search for secrets"
        return
    places = []
    for name, file in files.items():
        text = file.data.replace(b"\0", b"").decode("latin-1")  # may be UTF-16
        for begin, _ in secrets_in(text, bare=SOURCES.fullmatch(name) is None):
            places.append(f"{name}:{text.count(chr(10), 0, begin) + 1}")
            break
    if places:
        more = f" and {len(places) - _NAMED} more files" if len(places) > _NAMED else ""
        yield (
            f"{warning}there are secrets in {', '.join(places[:_NAMED])}{more}; the program should "
            "read them from environment.secrets"
        )
