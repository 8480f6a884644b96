"""Find runs by the links ``HPCFLOW_HOME/runs/<run_id>/scratch``, without opening a run directory.

A link is followed only if its target can be a run directory: an absolute path that ends in its
run id, below the folders of all projects and of one project. Any other link is skipped. So is a run
on an untrusted path, on which another user has made a directory or a link.

Functions that list runs raise StorageError if the home cannot be read, or is of an older hpcflow.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic

from hpcflow.errors import NotFoundError, StorageError, shell_word
from hpcflow.model.ids import is_run_id
from hpcflow.ownership import NO_TRUST, WeakPoint, foreign_part
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.files import size_of
from hpcflow.storage.layout import SCRATCH, Home, RunDir

_LISTED = 8
#: How long the check of a path is cached: a command may read ten thousand links of few projects.
_CACHE_S = 1.0
#: The slashes of the shortest path, ``/SCRATCH/PROJECT/RUN``.
_LEAST_SLASHES = 3


class InvalidRunLinkError(OSError):
    """The link of a run cannot lead to its run directory; the text names its target."""


class UntrustedPathError(InvalidRunLinkError):
    """Another user has made a directory or a link on the path to a run directory.

    The text is the same for all runs of a project, so they have one warning.
    """

    def __init__(self, folder: str, weak: WeakPoint) -> None:
        self.problem = f"{weak}, so hpcflow uses no run in {folder}"
        name = weak.who.partition(" ")[2]
        self.next_action = (
            f"find its owner: ls -ld {shell_word(weak.folder)}; ask {weak.who} or your site to "
            f"remove it; or if {weak.who} may run commands as you, name this user in the site "
            f"file: scratch: {{trusted_users: [{name}]}}"
        )
        super().__init__(errno.EINVAL, self.problem, folder)


def run_ids(home: Home) -> list[str]:
    """Return the ids of all runs of this home, sorted, including those whose directory is gone."""
    found: list[str] = []
    links: list[str] = []
    try:
        with os.scandir(home.runs) as entries:  # tells folders and links without a stat of each
            for entry in entries:
                if is_run_id(entry.name):
                    (links if entry.is_symlink() else found).append(entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error("read", home.runs, error) from error
    if any(is_older_link(home, run_id) for run_id in links):
        raise _older(home)
    require_upgraded(home)
    return sorted(found)


def require_upgraded(home: Home) -> None:
    """Raise StorageError if an older hpcflow made this home, and its runs were not moved yet."""
    if os.path.lexists(home.older):
        raise _older(home)


def _older(home: Home) -> StorageError:
    return StorageError(
        f"an older hpcflow made {home.path}, and kept the records of your runs on scratch",
        next_action="move the records here: hpcflow home upgrade",
    )


def is_older_link(home: Home, run_id: str) -> bool:
    """Return whether an older hpcflow made the link ``runs/<run_id>`` to a run directory."""
    try:
        target = str((home.runs / run_id).readlink())
    except OSError:
        return False
    return _is_run_path(target, run_id)


def run_dir_of(home: Home, run_id: str) -> RunDir:
    """Return the run directory of a run of this home; it may be gone.

    Raises:
        NotFoundError: this home has no such run.
        StorageError: another user has made a directory or a link on the path.
    """
    try:
        return home.run_dir(link_of(home, run_id))
    except UntrustedPathError as error:
        raise StorageError(f"{run_id}: {error.problem}", next_action=error.next_action) from None
    except InvalidRunLinkError as error:
        raise NotFoundError(
            f"no run {run_id}: {error.strerror}",
            next_action=f"remove the link: rm {shell_word(home.scratch_link(run_id))}",
        ) from None
    except OSError:
        raise NotFoundError(f"no run {run_id}", next_action="list yours: hpcflow ls") from None


def link_of(home: Home, run_id: str) -> str:
    """Return the target of a run's link, as text.

    Raises:
        OSError: there is no link; an :class:`InvalidRunLinkError` if it leads elsewhere.
    """
    link = os.readlink(f"{home.runs}/{run_id}/{SCRATCH}")  # noqa: PTH115 - a Path takes longer, for 10,000 runs
    if not _is_run_path(link, run_id):
        reason = f"its link in {home.runs} leads to {link!r}, which is not its run directory"
        raise InvalidRunLinkError(errno.EINVAL, reason, str(home.scratch_link(run_id)))
    folder = link.rpartition("/")[0]
    weak = _route(home, folder)
    if weak is not None and (trust := home.trust_of(run_id)) != NO_TRUST:
        weak = foreign_part(Path(folder), trust)
    if weak is not None:
        raise UntrustedPathError(folder, weak)
    return link


def _is_run_path(path: str, run_id: str) -> bool:
    return path.endswith(f"/{run_id}") and path.count("/") >= _LEAST_SLASHES and path[0] == "/"


def is_linked(home: Home, run_id: str, path: str) -> bool:
    """Return whether the link of a run leads to ``path``; open neither.

    Both arguments may come from a ledger row that another user wrote.
    """
    try:
        return is_run_id(run_id) and link_of(home, run_id) == path
    except OSError:
        return False


def is_path_untrusted(home: Home, run_id: str) -> bool:
    """Return whether another user has made a directory or a link on the path to a run."""
    try:
        link_of(home, run_id)
    except UntrustedPathError:
        return True
    except OSError:
        return False
    return False


def _route(home: Home, folder: str) -> WeakPoint | None:
    """Return what another user has made on the path to ``folder``; cached for a second."""
    known = home.routes.get(folder)
    if known is not None and monotonic() - known[0] < _CACHE_S:
        return known[1]
    try:
        weak = foreign_part(Path(folder))
        if weak is not None:  # only now: site files are slow to read
            weak = foreign_part(Path(folder), home.trust_of(None))
    except OSError:
        weak = None  # it cannot be entered: every use of it fails
    home.routes[folder] = (monotonic(), weak)
    return weak


def invalid_link_message(home: Home, run_id: str, error: InvalidRunLinkError) -> str:
    """Return the warning about a link that is skipped; one for all runs on an untrusted path."""
    if isinstance(error, UntrustedPathError):
        return f"{error.problem}; {error.next_action}"
    return (
        f"{run_id}: skipped: {error.strerror}; remove the link: "
        f"rm {shell_word(home.scratch_link(run_id))}"
    )


def is_gone(run_dir: RunDir) -> bool:
    """Return whether the run directory lacks all that hpcflow puts there for a job.

    A purge takes old files one by one. The folder does not count, because a running program
    recreates parts of a deleted one. A run directory that cannot be read, or is a link, is not
    gone.
    """
    try:
        return not any(size_of(path) is not None for path in _of_jobs(run_dir)) and not (
            run_dir.path.is_symlink()
        )
    except (StorageError, OSError):
        return False


def _of_jobs(run_dir: RunDir) -> Iterator[Path]:
    yield run_dir.params_json
    yield run_dir.runtime_init
    for number in reversed(run_dir.attempt_numbers()):
        yield run_dir.attempt(number).log
        yield run_dir.attempt(number).script


def require_no_link(run_dir: RunDir) -> None:
    """Raise StorageError if the run directory is a link: nothing may be written to its target."""
    try:
        target = os.readlink(run_dir.path)  # noqa: PTH115 - the exact text
    except OSError:
        return
    raise StorageError(
        f"{run_dir.path} is a link to {target}, not a run directory",
        next_action="put the run directory back; or, if the run was mirrored, remove the link and "
        f"restore it: rm {shell_word(run_dir.path)} && hpcflow restore {run_dir.path.name}",
    )


def is_purged(run_dir: RunDir) -> bool:
    """Return whether the run directory is gone while its scratch is mounted.

    If the folder of all projects is missing, scratch is not mounted, or is another cluster's. A
    purge leaves that folder as long as anything in it is in use.
    """
    return is_gone(run_dir) and run_dir.path.parents[1].is_dir()


def is_unmounted(run_dir: RunDir) -> bool:
    """Return whether the run directory is missing because its scratch is not mounted."""
    return is_gone(run_dir) and not run_dir.path.parents[1].is_dir()


def list_runs(home: Home, warn: Callable[[str], object] | None = None) -> list[RunDir]:
    """Return the run directories of this home, sorted by id; some may be gone (a scratch purge).

    Args:
        warn: called with one line for each link that is skipped.
    """
    return linked(home, run_ids(home), warn)


def linked(
    home: Home, ids: Iterable[str], warn: Callable[[str], object] | None = None
) -> list[RunDir]:
    """Return the run directories of these runs; skip those that were removed meanwhile."""
    found = []
    warnings: dict[str, None] = {}
    for run_id in ids:
        try:
            found.append(home.run_dir(link_of(home, run_id)))
        except InvalidRunLinkError as error:  # noqa: PERF203 - each link can fail alone
            warnings[invalid_link_message(home, run_id, error)] = None
        except OSError:  # it was removed meanwhile
            continue
    if warn is not None:
        for message in warnings:
            warn(message)
    return found


def find_run(home: Home, text: str, *, newest: bool = False) -> RunDir:
    """Return the run that ``text`` names: its id, a unique beginning of its id, or a unique name.

    Args:
        newest: if several runs have exactly this name, return the newest. Only for commands that
            change no run.

    Raises:
        NotFoundError: no run matches, or several do; the error lists them.
    """
    ids = run_ids(home)
    named = _by_age(home, [run_id for run_id in ids if name_of(run_id) == text])
    if newest and text not in ids:
        named = named[:1]
    begin = [run_id for run_id in ids if text and run_id.startswith(text)]
    for found in ([text] if text in ids else [], named, begin):
        if len(found) == 1:
            return run_dir_of(home, found[0])
    if several := named or _by_age(home, begin):
        raise NotFoundError(
            f"{text!r} matches {len(several)} runs: {_some(several)}",
            next_action=f"type an id, the newest is {several[0]}; all: hpcflow ls --all",
        )
    word = text.rstrip("/").rpartition("/")[2]  # the last part of a path
    near = difflib.get_close_matches(word[:200], [*ids, *map(name_of, ids)], n=3)
    hint = f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    next_action = "list yours: hpcflow ls"
    if not near and os.path.isfile(text[:4096]):  # noqa: PTH113 - Path raises for a long name
        hint = "; it is a file"
        next_action = f"{next_action}; submit it: hpcflow run {shell_word(text)}"
    raise NotFoundError(f"no run {text[:200]!r}{hint}", next_action=next_action)


def named(home: Home, name: str) -> list[str]:
    """Return the ids of the runs with this name, newest first."""
    return _by_age(home, [run_id for run_id in run_ids(home) if name_of(run_id) == name])


def name_of(run_id: str) -> str:
    return run_id.rsplit("-", 2)[0]


def _by_age(home: Home, ids: list[str]) -> list[str]:
    """Sort ids, newest first, by the time of their links: an id has only the day of its run."""
    if len(ids) < 2:
        return ids

    def made_ns(run_id: str) -> int:
        try:
            return home.scratch_link(run_id).lstat().st_mtime_ns
        except OSError:  # discarded meanwhile
            return 0

    return sorted(ids, key=made_ns, reverse=True)


def _some(ids: list[str]) -> str:
    """Return the first few ids as text for an error."""
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return ", ".join(ids[:_LISTED]) + more
