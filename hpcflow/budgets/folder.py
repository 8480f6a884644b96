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
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE, append_line_durably, fsync_folder, size_of
from hpcflow.storage.layout import Home
from hpcflow.storage.locks import lock_shared_file
from hpcflow.storage.shared import make_file, make_folder, open_folder

# These import slowly, and most commands find no budget.
if TYPE_CHECKING:
    from hpcflow.budgets.state import Budget
    from hpcflow.sites.schema import Site

#: The lock is held while a few lines are read and written.
_WAIT_S: Final = 60.0
#: Memory of cached budgets: a teammate can make any number of files.
MOST_MEMORY: Final = 512 << 20
_LEAST_BYTES: Final = 4096
_WARNED: Final[set[Path]] = set()

_log = logging.getLogger(__name__)


@dataclass
class _CachedBudget:
    """A cached budget: the state of a file up to a byte."""

    inode: int
    offset: int
    budget: Budget
    memory: int = 0
    past: frozenset[tuple[str, int]] | None = None


class _BudgetCache(dict[Path, _CachedBudget]):
    """The cached budgets. The least recently read are dropped first."""

    memory = 0

    def keep(self, path: Path, looked: _CachedBudget) -> None:
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


_CACHE: Final = _BudgetCache()


@dataclass(frozen=True)
class BudgetFolder:
    """The directory of budgets. Methods raise StorageError if a file is unreadable or not writable.

    Attributes:
        site: the site whose file names it; None for a user's own.
    """

    path: Path
    site: str | None = None

    def file(self, scope: Scope) -> Path:
        """Return the path of one budget's file, which may not exist."""
        return self.path / scope.kind / f"{scope.name}.jsonl"

    def has(self, scope: Scope) -> bool:
        """Return whether the file exists; a removed budget still has one.

        Raises:
            StorageError: that is unknown, and a hidden limit must not be exceeded.
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
        """Return whether the directory exists.

        Without one, no budget is set; a site's directory may be unmounted.
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
        self._require_mounted()
        found = []
        for kind in KINDS:
            try:
                with open_folder(self.path) as shared, open_folder(kind, within=shared) as folder:
                    names = sorted(os.listdir(folder))  # noqa: PTH208 - a descriptor
            except (FileNotFoundError, UnsafeFileError):  # a link, or not a folder: no budgets
                continue
            except OSError as error:
                raise storage_error("read", self.path / kind, error) from error
            for name in names:
                if name.endswith(".jsonl"):
                    try:
                        found.append(parse_scope(f"{kind}:{name.removesuffix('.jsonl')}"))
                    except InputError:  # a foreign file
                        continue
        return found

    def read(self, scope: Scope, *, whole: bool = False) -> Budget:
        """Return one budget; one that was never set has no terms.

        Args:
            whole: read from the first line, with all attempts and changes.
        """
        return self._load(scope, whole=whole)[0]

    def past(self, scope: Scope) -> frozenset[tuple[str, int]]:
        """Return run and attempt of all entries at the first look, including compacted ones.

        The whole file is read for this once.
        """
        self.look(scope)
        known = _CACHE.get(self.file(scope))
        if known is None:
            return frozenset()
        if known.past is None:
            known.past = frozenset(self.read(scope, whole=True).entries)
        return known.past

    def look(self, scope: Scope) -> Budget:
        """Return a budget from the cache, which must not be changed; read only added lines."""
        from hpcflow.budgets.budget_file import read_on
        from hpcflow.budgets.state import Budget

        path = self.file(scope)
        try:
            status = path.lstat()
        except FileNotFoundError:
            return Budget(scope)
        except OSError as error:
            raise storage_error("look at", path, error) from error
        known = _CACHE.get(path)
        if known is None or known.inode != status.st_ino or known.offset > status.st_size:
            _CACHE.forget(path)
            budget, offset = self._load(scope, whole=False)
            known = _CachedBudget(status.st_ino, offset, budget)
            _CACHE.keep(path, known)
        elif known.offset < status.st_size:
            _CACHE.forget(path)  # a failed read would leave half of the lines
            with suppress(FileNotFoundError), self._opened(scope) as file:
                known.offset = read_on(known.budget, file, known.offset)
            _CACHE.keep(path, known)
        return known.budget

    def damage(self, budget: Budget) -> str | None:
        """Return a warning if the file of ``budget`` lacks the line that sets it, always the first.

        Nothing limits what counts against such a budget.
        """
        path = self.file(budget.scope)
        if budget.terms is not None or budget.changes:
            return None
        try:
            if path.lstat().st_size == 0:
                return None
        except OSError:
            return None
        option = f" --site {shell_word(self.site)}" if self.site is not None else ""
        return (
            f"budget {budget.scope}: its file {path} is damaged, so it limits nothing; set it "
            f"again: hpcflow budget set {shell_word(budget.scope)} --hard 500{option}"
        )

    def _load(self, scope: Scope, *, whole: bool) -> tuple[Budget, int]:
        """Return one budget, and the offset up to which its file was read."""
        from hpcflow.budgets.budget_file import read_budget
        from hpcflow.budgets.state import Budget

        try:
            with self._opened(scope) as file:
                return read_budget(scope, file, whole=whole)
        except FileNotFoundError:
            return Budget(scope), 0

    @contextmanager
    def _opened(self, scope: Scope) -> Iterator[int]:
        """Open a budget file, or raise FileNotFoundError; any user may own a shared one."""
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
        """Return the size of its file in bytes; 0 without one."""
        return size_of(self.file(scope)) or 0

    @contextmanager
    def lock(self, clock: Clock | None = None, *, wait_s: float = _WAIT_S) -> Iterator[bool]:
        """Lock all budgets here; yield whether the file system really provides locks.

        Args:
            wait_s: how long to wait for the lock; a command that only reads does not wait.

        Raises:
            StorageError: the folder cannot be written, or another process holds the lock too long.
        """
        path = self.path / "lock"
        with self._open_or_create(path.name) as (shared, _):
            _warn_of_others(path, shared)
            with lock_shared_file(path, shared, wait_s=wait_s, clock=clock) as is_reliable:
                yield is_reliable

    def append(self, scope: Scope, lines: list[str]) -> None:
        """Append whole lines durably, with one write. The caller holds the lock."""
        path, is_shared = self.file(scope), self.site is not None
        with self._open_or_create(path.name, scope.kind) as (_, kind):
            append_line_durably(path, "".join(lines), any_owner=is_shared, within=kind)

    @contextmanager
    def _open_or_create(self, name: str, kind: str | None = None) -> Iterator[tuple[int, int]]:
        """Open the folder, and the one of ``kind`` in it; create them and the file if missing.

        Created files and folders have the same access for others as the folder itself.
        """
        self._require_mounted()
        with storage_errors("make", self.path / (kind or "") / name):
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
                    make_file(
                        name, last, _lock_mode(mode) if kind is None else mode & 0o666 | FILE_MODE
                    )
                opened = stack.pop_all()
        with opened:
            yield shared, last


def _lock_mode(folder: int) -> int:
    """Return the mode of the lock file: a user who can read it can hold it, so only writers may."""
    return FILE_MODE | (0o060 if folder & 0o020 else 0) | (0o006 if folder & 0o002 else 0)


def _warn_of_others(path: Path, shared: int) -> None:
    """Warn once that users without write access can block submissions with the lock."""
    with suppress(OSError):
        mode = os.lstat(path.name, dir_fd=shared).st_mode
        if not stat.S_ISREG(mode):
            return  # the suggested chmod would follow a link
        if mode & 0o007 & ~_lock_mode(os.fstat(shared).st_mode) and path not in _WARNED:
            _WARNED.add(path)
            _log.warning(
                "any user of this machine can lock %s and block submissions; its owner can fix "
                "this: chmod o-rwx %s",
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
    """Return the directory of the budgets for runs on ``site``."""
    if site.budgets_dir is not None:
        return BudgetFolder(Path(site.budgets_dir), site.name)
    return BudgetFolder(home.budgets)
