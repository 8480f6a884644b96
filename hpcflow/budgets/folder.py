"""The folder of budgets: a file for each, and one lock for all of them."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.budgets.carrying import MARK, budget_from
from hpcflow.budgets.scope import KINDS, Scope, parse_scope
from hpcflow.budgets.state import Budget, fold
from hpcflow.clock import Clock
from hpcflow.errors import InputError, StorageError
from hpcflow.storage.files import (
    FILE_MODE,
    FOLDER_MODE,
    append_line_durably,
    fsync_folder,
    read_file,
    read_from,
    size_of,
    storage_error,
)
from hpcflow.storage.layout import Home
from hpcflow.storage.locks import lock_file

# A site takes long to import, and who only looks needs none.
if TYPE_CHECKING:
    from hpcflow.sites.schema import Site

#: It is held for as long as it takes to read and write a few lines.
_WAIT_S: Final = 60.0
_MOST_LOOKED: Final = 20_000


@dataclass
class _Looked:
    """What this process knows of a file, up to a byte of it."""

    inode: int
    offset: int
    budget: Budget


_LOOKED: Final[dict[Path, _Looked]] = {}


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
            self.file(scope).stat()
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
            return stat.S_ISDIR(self.path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_error("look at", self.path, error) from error

    def _require_mounted(self) -> None:
        if self.site is not None and not self.is_there():
            raise StorageError(
                f"the budgets of site {self.site} are in {self.path}, and that is not there: "
                "nobody knows what may be spent",
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
                names = sorted(os.listdir(self.path / kind))  # noqa: PTH208 - names are enough
            except FileNotFoundError:
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

    def look(self, scope: Scope) -> Budget:
        """The same for whoever looks again and again, and changes nothing of it: this process reads
        only what was added since it last looked.

        Raises:
            StorageError: its file cannot be read.
        """
        path = self.file(scope)
        try:
            status = path.stat()
        except FileNotFoundError:
            return Budget(scope)
        except OSError as error:
            raise storage_error("look at", path, error) from error
        known = _LOOKED.get(path)
        if known is None or known.inode != status.st_ino or known.offset > status.st_size:
            if len(_LOOKED) >= _MOST_LOOKED:
                _LOOKED.clear()
            budget, offset = self._load(scope, whole=False)
            known = _LOOKED[path] = _Looked(status.st_ino, offset, budget)
        elif known.offset < status.st_size:
            data = read_from(path, known.offset, status.st_size - known.offset, any_owner=True)
            end = data.rfind(b"\n") + 1
            fold(known.budget, (line for line in data[:end].split(b"\n") if line))
            known.offset += end
        return known.budget

    def _load(self, scope: Scope, *, whole: bool) -> tuple[Budget, int]:
        """One budget, and how far its file was read."""
        path = self.file(scope)
        try:
            data = read_file(path, any_owner=True)
        except FileNotFoundError:
            return Budget(scope), 0
        except OSError as error:
            raise storage_error("read", path, error) from error
        # A last line without its end is torn, or being written: it is not there yet.
        data = data[: data.rfind(b"\n") + 1]
        budget, begin = (Budget(scope), 0) if whole else _begin(scope, data)
        return fold(budget, (line for line in data[begin:].split(b"\n") if line)), len(data)

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
            wait_s: how long to wait for whoever has it; who only looks does not wait.

        Raises:
            StorageError: the folder cannot be written, or somebody else is at it for too long.
        """
        self._make(self.path)
        path = self.path / "lock"
        self._create(path)
        with lock_file(path, wait_s=wait_s, clock=clock) as is_reliable:
            yield is_reliable

    def append(self, scope: Scope, lines: list[str]) -> None:
        """Add whole lines, with one write; on the disk when this returns. Under the lock.

        Raises:
            StorageError: they could not be written.
        """
        path = self.file(scope)
        self._make(path.parent)
        self._create(path)
        append_line_durably(path, "".join(lines), any_owner=True)

    def _make(self, folder: Path) -> None:
        """Make ``folder``, as open as the one that is shared."""
        self._require_mounted()
        try:
            if not folder.is_dir():
                folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
                if self.site is not None:
                    folder.chmod(stat.S_IMODE(self.path.stat().st_mode))
                fsync_folder(folder.parent)
        except OSError as error:
            raise storage_error("make", folder, error) from error

    def _create(self, path: Path) -> None:
        """Make an empty file, which the others of a shared folder may write, too.

        It gets its name last: whoever is killed leaves none that is closed to the others.
        """
        if os.path.lexists(path):
            return
        try:
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                if self.site is not None:
                    mode = stat.S_IMODE(self.path.stat().st_mode) & 0o666 | FILE_MODE
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                with suppress(FileExistsError):
                    os.link(name, path)
            finally:
                os.close(descriptor)
                os.unlink(name)  # noqa: PTH108 - a text
            fsync_folder(path.parent)
        except OSError as error:
            raise storage_error("make", path, error) from error


def _begin(scope: Scope, data: bytes) -> tuple[Budget, int]:
    """The newest line that says all that came before, and where the next one begins."""
    end = len(data)
    while (found := data.rfind(b"\n" + MARK, 0, end)) >= 0:
        after = data.index(b"\n", found + 1) + 1
        try:
            return budget_from(scope, data[found + 1 : after], at_byte=found + 1), after
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            end = found  # torn or damaged: the one before is as good
    return Budget(scope), 0


def budgets_of(site: Site, home: Home) -> BudgetFolder:
    """Where the budgets are that runs on ``site`` count against."""
    if site.budgets_dir is not None:
        return BudgetFolder(Path(site.budgets_dir), site.name)
    return BudgetFolder(home.budgets)
