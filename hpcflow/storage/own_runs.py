"""Decide which rows of a ledger are runs of this home. hpcflow acts only on these.

Several homes can share a ledger, and a row can be older than a move of its run. So the links in
``HPCFLOW_HOME/runs`` decide which runs belong to this home and where they are. hpcflow does not act
on a row that differs.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.errors import StorageError, shell_word
from hpcflow.model.ids import is_run_id
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import UntrustedPathError, invalid_link_message, link_of

if TYPE_CHECKING:
    from hpcflow.storage.journal import Journal

#: How many missing links are named one by one.
_MAX_NAMED: Final = 3
#: The limits of parsed journals in memory: their number, and the bytes of one. A tick may read
#: those of ten thousand runs, and one from a store can have any length.
_MOST_JOURNALS: Final = 64
_LARGEST_JOURNAL: Final = 256 << 10


class OwnRuns:
    """The runs of a home, for one command or tick: each link and its directory is read once."""

    def __init__(self, home: Home) -> None:
        self._home, self._user = home, os.geteuid()
        self._targets: dict[str, str] = {}
        self._links: dict[str, str | None] = {}
        self._lost: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._reported: set[str] = set()
        self._journals: dict[str, Journal] = {}

    def journal_of(self, run_dir: RunDir) -> Journal:
        """Return the journal of a run, parsed once for all callers."""
        # It brings pydantic. A look at runs without news, as of `hpcflow ls`, opens no journal.
        from hpcflow.storage.journal import Journal

        path = str(run_dir.path)
        found = self._journals.pop(path, None) or Journal(run_dir)
        newest = next(reversed(self._journals), None)
        if newest is not None and self._journals[newest].size_bytes > _LARGEST_JOURNAL:
            del self._journals[newest]
        if len(self._journals) >= _MOST_JOURNALS:
            del self._journals[next(iter(self._journals))]
        self._journals[path] = found
        return found

    def link_of(self, run_id: str) -> str:
        """Return the target of a run's link, as text; see :func:`hpcflow.storage.runs.link_of`."""
        target = self._targets.get(run_id)
        if target is None:
            target = self._targets[run_id] = link_of(self._home, run_id)
        return target

    def dir_of(self, run_id: str, in_ledger: str) -> RunDir | None:
        """Return the run directory of a run; None if hpcflow must not act on it."""
        return self._home.run_dir(in_ledger) if self.has(run_id, in_ledger) else None

    def has(self, run_id: str, in_ledger: str) -> bool:
        """Return whether hpcflow may act on a run at the path that the ledger has."""
        if run_id not in self._links:
            self._links[run_id] = self._look(run_id, in_ledger)
        link = self._links[run_id]
        if link is None or link == in_ledger:
            return link is not None
        if run_id in self._reported:
            return False
        self._problems[run_id] = (
            f"{run_id}: skipped: its path in the ledger differs from the link "
            f"{self._home.scratch_link(run_id)}; if the link is right: hpcflow ledger rebuild"
        )
        return False

    def warnings(self) -> list[str]:
        """Return warnings about runs that were skipped, each once."""
        self._reported |= self._problems.keys()
        lost, self._lost = list(self._lost.items()), {}
        messages, self._problems = list(self._problems.values()), {}
        for run_id, path in lost[:_MAX_NAMED]:
            link = self._home.scratch_link(run_id)
            if link.parent.is_dir():
                messages.append(
                    f"{run_id}: skipped: it is yours, but {link} is missing; make it again: "
                    f"ln -s {shell_word(path)} {shell_word(link)}"
                )
            else:
                messages.append(
                    f"{run_id}: skipped: it is yours, but its record {link.parent} is missing; put "
                    "it back from a backup; if the run was mirrored: hpcflow restore --from URL"
                )
        if len(lost) > _MAX_NAMED:
            messages.append(
                f"{len(lost) - _MAX_NAMED} more runs of yours are skipped because of this; list "
                "them: hpcflow ledger check"
            )
        return messages

    def _look(self, run_id: str, in_ledger: str) -> str | None:
        """Return the target of a run's link, as text, which is faster than a Path."""
        if not is_run_id(run_id):
            return None
        try:
            link = self.link_of(run_id)
        except UntrustedPathError as error:
            self._problems[error.problem] = invalid_link_message(self._home, run_id, error)
            return None
        except OSError:
            if _is_certainly_ours(run_id, Path(in_ledger)):
                self._lost[run_id] = in_ledger
            return None
        if _owner(link) not in (None, self._user):
            self._problems[run_id] = f"{_others_warning(run_id)}; skipped"
            return None
        return link


def is_others(run_dir: RunDir) -> bool:
    """Return whether another user owns a run directory: made again where ours was purged.

    A directory that is gone or not readable has no owner here.
    """
    return _owner(str(run_dir.path)) not in (None, os.geteuid())


def require_own(run_dir: RunDir) -> RunDir:
    """Return ``run_dir`` itself. Raise StorageError if it belongs to another user."""
    if is_others(run_dir):
        raise StorageError(
            _others_warning(run_dir.path.name),
            next_action=f"see its owner: ls -ld {shell_word(run_dir.path)}; see your running jobs: "
            "squeue --me",
        )
    return run_dir


def _others_warning(run_id: str) -> str:
    return f"{run_id}: its run directory now belongs to another user"


def _owner(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def _is_certainly_ours(run_id: str, path: Path) -> bool:
    """Return whether a run without a link is this user's: the user owns its files."""
    with suppress(OSError, ValueError):
        folder, frozen = os.lstat(path), os.lstat(RunDir(path).params_json)
        return (
            path.name == run_id
            and path.is_absolute()
            # A directory inside another run may have come from a store.
            and not any(map(is_run_id, path.parts[:-1]))
            and stat.S_ISDIR(folder.st_mode)
            and stat.S_ISREG(frozen.st_mode)
            and {folder.st_uid, frozen.st_uid} == {os.geteuid()}
        )
    return False
