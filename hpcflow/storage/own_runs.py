"""Which rows of a ledger are about runs of this home; what is done to a run, is done to these only.

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

#: How many lost links are told one by one.
_TOLD: Final = 3
#: So many parsed journals stay in memory, none of more bytes than that: a round may read those of
#: ten thousand runs, and one from a store can have any length.
_MOST_JOURNALS: Final = 256
_LARGEST_JOURNAL: Final = 256 << 10


class OwnRuns:
    """The runs of a home, for the length of one look: each link and its directory is seen once."""

    def __init__(self, home: Home) -> None:
        self._home, self._user = home, os.geteuid()
        self._links: dict[str, str | None] = {}
        self._lost: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self._told: set[str] = set()
        self._journals: dict[str, Journal] = {}

    def journal_of(self, run_dir: RunDir) -> Journal:
        """The journal of a run: what reads it first in a look has parsed it for the others."""
        # It brings pydantic, and a look at runs without news, as of `hpcflow ls`, opens no journal.
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

    def dir_of(self, run_id: str, in_ledger: str) -> RunDir | None:
        """The run directory that the link of a run leads to; None if the run is not to be touched.

        Args:
            in_ledger: where the ledger says that it is.
        """
        return RunDir(Path(in_ledger)) if self.has(run_id, in_ledger) else None

    def has(self, run_id: str, in_ledger: str) -> bool:
        """Whether a run may be touched, there where the ledger says that it is."""
        if run_id not in self._links:
            self._links[run_id] = self._look(run_id, in_ledger)
        link = self._links[run_id]
        if link is None or link == in_ledger:
            return link is not None
        if run_id in self._told:
            return False
        self._said[run_id] = (
            f"{run_id}: the ledger has it in another place than {self._home.runs / run_id} leads "
            "to, so nothing is done about it; if the link is right: hpcflow ledger rebuild"
        )
        return False

    def warnings(self) -> list[str]:
        """What people should know of runs that were not touched; each is told once."""
        self._told |= self._said.keys()
        lost, self._lost = list(self._lost.items()), {}
        said, self._said = list(self._said.values()), {}
        for run_id, path in lost[:_TOLD]:
            said.append(
                f"{run_id}: it is yours, but {self._home.runs} has no link to it, so nothing is "
                f"done about it; to have it back: ln -s {shell_word(path)} "
                f"{shell_word(self._home.runs)}/"
            )
        if len(lost) > _TOLD:
            said.append(
                f"{len(lost) - _TOLD} more runs of yours have no link; see which: "
                "hpcflow ledger check"
            )
        return said

    def _look(self, run_id: str, in_ledger: str) -> str | None:
        """Where the link of a run leads to, in text: there may be ten thousand in every round."""
        if not is_run_id(run_id):
            return None
        try:
            link = link_of(self._home, run_id)
        except UntrustedPathError as error:
            self._said[error.problem] = invalid_link_message(self._home, run_id, error)
            return None
        except OSError:
            if _is_certainly_ours(run_id, Path(in_ledger)):
                self._lost[run_id] = in_ledger
            return None
        if _owner(link) not in (None, self._user):
            self._said[run_id] = f"{_others_warning(run_id)}; nothing is done about it"
            return None
        return link


def is_others(run_dir: RunDir) -> bool:
    """Whether a run directory is somebody else's: created again in the place of one that was
    purged.

    One that is gone, or cannot be looked at, is nobody's.
    """
    return _owner(str(run_dir.path)) not in (None, os.geteuid())


def require_own(run_dir: RunDir) -> RunDir:
    """``run_dir``, if it may be acted upon.

    Raises:
        StorageError: it belongs to somebody else.
    """
    if is_others(run_dir):
        raise StorageError(
            _others_warning(run_dir.path.name),
            next_action=f"see whose: ls -ld {shell_word(run_dir.path)}; jobs of yours that "
            "still run: squeue --me",
        )
    return run_dir


def _others_warning(run_id: str) -> str:
    return f"{run_id}: its run directory belongs to another user now"


def _owner(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def _is_certainly_ours(run_id: str, path: Path) -> bool:
    """Whether a run that has no link is ours all the same: its files belong to this user."""
    with suppress(OSError, ValueError):
        folder, frozen = os.lstat(path), os.lstat(RunDir(path).run_json)
        return (
            path.name == run_id
            and path.is_absolute()
            # What lies in another run may have come from a store.
            and not any(map(is_run_id, path.parts[:-1]))
            and stat.S_ISDIR(folder.st_mode)
            and stat.S_ISREG(frozen.st_mode)
            and {folder.st_uid, frozen.st_uid} == {os.geteuid()}
        )
    return False
