"""The directory of budgets: one file for each, and one lock for all."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.budgets.scope import KINDS, Scope, parse_scope
from hpcflow.clock import Clock
from hpcflow.errors import InputError, StorageError, shell_word
from hpcflow.runtime.reading import MAX_LINES_FILE_BYTES, UnsafeFileError, open_regular
from hpcflow.storage.files import (
    FILE_MODE,
    FOLDER_MODE,
    append_line_durably,
    fsync_folder,
    size_of,
    storage_error,
)
from hpcflow.storage.layout import Home
from hpcflow.storage.locks import lock_shared_file
from hpcflow.storage.shared import make_file, make_folder, open_folder

# These take long to import, and most commands find that there is no budget.
if TYPE_CHECKING:
    from hpcflow.budgets.state import Budget
    from hpcflow.sites.schema import Site

#: It is held for as long as it takes to read and write a few lines.
_WAIT_S: Final = 60.0
#: Of the budgets that this process keeps: a teammate can make any number of files.
MOST_MEMORY: Final = 512 << 20
_LEAST_BYTES: Final = 4096
_WARNED: Final[set[Path]] = set()

_log = logging.getLogger(__name__)


@dataclass
class _Looked:
    """What this process knows of a file, up to a byte of it."""

    inode: int
    offset: int
    budget: Budget
    memory: int = 0
    past: frozenset[tuple[str, int]] | None = None


class _Looks(dict[Path, _Looked]):
    """What it knows of all files. Those that it has looked at longest ago are forgotten first."""

    memory = 0

    def keep(self, path: Path, looked: _Looked) -> None:
        self.forget(path)
        looked.memory = _LEAST_BYTES + looked.budget.memory
        self[path] = looked
        self.memory += looked.memory
        while self.memory > MOST_MEMORY and len(self) > 1:
            self.forget(next(iter(self)))

    def forget(self, path: Path) -> None:
        if (known := self.pop(path, None)) is not None:
            self.memory -= known.memory

    def clear(self) -> None:
        super().clear()
        self.memory = 0


_LOOKED: Final = _Looks()


@dataclass(frozen=True)
class BudgetFolder:
    """Where budgets are.

    Attributes:
        site: the site whose file names it; None where it is a user's own.
    """

    path: Path
    site: str | None = None

    def file(self, scope: Scope) -> Path:
        """The file of one budget, which need not be there."""
        return self.path / scope.kind / f"{scope.name}.jsonl"

    def has(self, scope: Scope) -> bool:
        """Whether there is such a file; what was removed has one, too.

        Raises:
            StorageError: nobody can tell: what may not be spent must not be spent unseen.
        """
        try:
            self.file(scope).lstat()
        except FileNotFoundError:
            self._require_mounted()
            return False
        except OSError as error:
            raise storage_error("look at", self.file(scope), error) from error
        return True

    def is_there(self) -> bool:
        """Whether there is such a folder. Without one nobody has set a budget; that of a site may
        be unmounted.

        Raises:
            StorageError: nobody can tell.
        """
        try:
            is_link = stat.S_ISLNK(mode := self.path.lstat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_error("look at", self.path, error) from error
        if is_link:
            raise StorageError(
                f"the budget directory {self.path} is a symbolic link",
                next_action=f"find its target: ls -ld {shell_word(self.path)}; name that folder "
                "as `budgets_dir` in the site file",
            )
        return stat.S_ISDIR(mode)

    def _require_mounted(self) -> None:
        if self.site is not None and not self.is_there():
            raise StorageError(
                f"the budgets of site {self.site} are in {self.path}, which is missing: "
                "the limits are not known",
                next_action="wait until it is mounted; or make it, open to your group: "
                f"mkdir -m 2770 {self.path}",
            )

    def scopes(self) -> list[Scope]:
        """All that have a file.

        Raises:
            StorageError: the folder cannot be read.
        """
        self._require_mounted()
        found = []
        for kind in KINDS:
            try:
                with open_folder(self.path) as shared, open_folder(kind, within=shared) as folder:
                    names = sorted(os.listdir(folder))  # noqa: PTH208 - a descriptor
            except (FileNotFoundError, UnsafeFileError):  # a link, or no folder: it has no budgets
                continue
            except OSError as error:
                raise storage_error("read", self.path / kind, error) from error
            for name in names:
                if name.endswith(".jsonl"):
                    try:
                        found.append(parse_scope(f"{kind}:{name.removesuffix('.jsonl')}"))
                    except InputError:  # somebody else's file
                        continue
        return found

    def read(self, scope: Scope, *, whole: bool = False) -> Budget:
        """One budget; one that was never set has no terms.

        Args:
            whole: from its first line: with all attempts and changes that ever were.

        Raises:
            StorageError: its file cannot be read.
        """
        return self._load(scope, whole=whole)[0]

    def past(self, scope: Scope) -> frozenset[tuple[str, int]]:
        """Run and attempt of all that a budget had ever counted when this process first looked at
        it, also of those that a compacted line sums up. Its file is read for that once.

        Raises:
            StorageError: its file cannot be read.
        """
        self.look(scope)
        known = _LOOKED.get(self.file(scope))
        if known is None:
            return frozenset()
        if known.past is None:
            known.past = frozenset(self.read(scope, whole=True).entries)
        return known.past

    def look(self, scope: Scope) -> Budget:
        """The same, for a caller that looks again and again without changes: this process reads
        only what was added since it last looked.

        Raises:
            StorageError: its file cannot be read.
        """
        from hpcflow.budgets.budget_file import read_on
        from hpcflow.budgets.state import Budget

        path = self.file(scope)
        try:
            status = path.lstat()
        except FileNotFoundError:
            return Budget(scope)
        except OSError as error:
            raise storage_error("look at", path, error) from error
        known = _LOOKED.get(path)
        if known is None or known.inode != status.st_ino or known.offset > status.st_size:
            _LOOKED.forget(path)
            budget, offset = self._load(scope, whole=False)
            known = _Looked(status.st_ino, offset, budget)
            _LOOKED.keep(path, known)
        elif known.offset < status.st_size:
            _LOOKED.forget(path)  # where it fails, half of what was added would be known
            with suppress(FileNotFoundError), self._opened(scope) as file:
                known.offset = read_on(known.budget, file, known.offset)
            _LOOKED.keep(path, known)
        return known.budget

    def damage(self, budget: Budget) -> str | None:
        """Return a warning if the file of ``budget`` does not say what it is, as each does first.

        Nothing limits what counts against such a budget.
        """
        path = self.file(budget.scope)
        if budget.terms is not None or budget.changes:
            return None
        try:
            if path.lstat().st_size == 0:
                return None
        except OSError:  # there is none
            return None
        option = f" --site {shell_word(self.site)}" if self.site is not None else ""
        return (
            f"budget {budget.scope}: its file {path} is damaged, and nothing is limited by it; set "
            f"it again: hpcflow budget set {shell_word(budget.scope)} --hard 500{option}"
        )

    def _load(self, scope: Scope, *, whole: bool) -> tuple[Budget, int]:
        """One budget, and how far its file was read."""
        from hpcflow.budgets.budget_file import read_budget
        from hpcflow.budgets.state import Budget

        try:
            with self._opened(scope) as file:
                return read_budget(scope, file, whole=whole)
        except FileNotFoundError:
            return Budget(scope), 0

    @contextmanager
    def _opened(self, scope: Scope) -> Iterator[int]:
        """Open a budget file. In a shared directory, any user may own it.

        Raises:
            FileNotFoundError: there is none.
            StorageError: it cannot be read, or a link or anything else is in its place.
        """
        path = self.file(scope)
        try:
            with open_folder(self.path) as shared, open_folder(scope.kind, within=shared) as kind:
                descriptor = open_regular(
                    path.name,
                    max_bytes=MAX_LINES_FILE_BYTES,
                    any_owner=self.site is not None,
                    within=kind,
                )
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("read", path, error) from error
        try:
            yield descriptor
        except OSError as error:
            raise storage_error("read", path, error) from error
        finally:
            os.close(descriptor)

    def size(self, scope: Scope) -> int:
        """How long its file is, in bytes; 0 without one.

        Raises:
            StorageError: that cannot be found out.
        """
        return size_of(self.file(scope)) or 0

    @contextmanager
    def lock(self, clock: Clock | None = None, *, wait_s: float = _WAIT_S) -> Iterator[bool]:
        """Keep everybody else from changing any budget here, for the length of a ``with`` block;
        whether the file system really gave a lock.

        Args:
            wait_s: how long to wait for the lock; a command that only looks does not wait.

        Raises:
            StorageError: the folder cannot be written, or somebody else is at it for too long.
        """
        path = self.path / "lock"
        with self._made(path.name) as (shared, _):
            _warn_of_others(path, shared)
            with lock_shared_file(path, shared, wait_s=wait_s, clock=clock) as is_reliable:
                yield is_reliable

    def append(self, scope: Scope, lines: list[str]) -> None:
        """Add whole lines, with one write; on the disk when this returns. Under the lock.

        Raises:
            StorageError: they could not be written.
        """
        path, is_shared = self.file(scope), self.site is not None
        with self._made(path.name, scope.kind) as (_, kind):
            append_line_durably(path, "".join(lines), any_owner=is_shared, within=kind)

    @contextmanager
    def _made(self, name: str, kind: str | None = None) -> Iterator[tuple[int, int]]:
        """The folder, and the one of ``kind`` in it, open, with the file ``name`` in the last one:
        made where they are missing, as open to others as the folder itself.

        Raises:
            StorageError: they cannot be made, or a link or anything else is in the place of one.
        """
        self._require_mounted()
        try:
            if self.site is None and not self.path.is_dir():
                self.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
                fsync_folder(self.path.parent)
            with ExitStack() as stack:
                shared = last = stack.enter_context(open_folder(self.path))
                mode = FOLDER_MODE
                if self.site is not None:
                    mode = stat.S_IMODE(os.fstat(shared).st_mode)
                if kind is not None:
                    if not _is_there(kind, shared):
                        make_folder(kind, shared, mode)
                    last = stack.enter_context(open_folder(kind, within=shared))
                if not _is_there(name, last):
                    make_file(name, last, _lock_mode(mode) if kind is None else _file_mode(mode))
                opened = stack.pop_all()
        except OSError as error:
            raise storage_error("make", self.path / (kind or "") / name, error) from error
        with opened:
            yield shared, last


def _file_mode(folder: int) -> int:
    return folder & 0o666 | FILE_MODE


def _lock_mode(folder: int) -> int:
    """Whoever can read a lock can hold it: those alone who may write in the folder."""
    return FILE_MODE | (0o060 if folder & 0o020 else 0) | (0o006 if folder & 0o002 else 0)


def _warn_of_others(path: Path, shared: int) -> None:
    """Say once that users who may not write in the folder can stop submissions by its lock."""
    with suppress(OSError):
        mode = os.lstat(path.name, dir_fd=shared).st_mode
        if not stat.S_ISREG(mode):
            return  # the suggested chmod would follow a link
        if mode & 0o007 & ~_lock_mode(os.fstat(shared).st_mode) and path not in _WARNED:
            _WARNED.add(path)
            _log.warning(
                "any user of this machine can hold %s and so stop submissions; its owner closes "
                "it: chmod o-rwx %s",
                path,
                shell_word(path),
            )


def _is_there(name: str, within: int) -> bool:
    try:
        os.lstat(name, dir_fd=within)
    except FileNotFoundError:
        return False
    return True


def budgets_of(site: Site, home: Home) -> BudgetFolder:
    """Where the budgets are that runs on ``site`` count against."""
    if site.budgets_dir is not None:
        return BudgetFolder(Path(site.budgets_dir), site.name)
    return BudgetFolder(home.budgets)
