"""Passes over many runs: read new lines, or read everything again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from hpcflow.clock import SystemClock
from hpcflow.errors import LedgerError, StorageError
from hpcflow.ledger.rows import Change, HowFar, Known
from hpcflow.ledger.store import Ledger
from hpcflow.projection.applying import apply
from hpcflow.projection.gone import (
    forget_unsent,
    has_lost_journal,
    has_older_end,
    without_journal,
    without_other_clusters,
)
from hpcflow.projection.reading import (
    FOLD_ERRORS,
    JOURNAL,
    MIRROR,
    FileShrankError,
    RunChangedError,
    RunReader,
    events_of,
)
from hpcflow.projection.rows_backup import (
    back_up_of_purged,
    back_up_rows,
    may_be_at_rest,
    read_backup,
)
from hpcflow.runtime.reading import MAX_LINES_FILE_BYTES, read_object
from hpcflow.storage.dirty_marks import dirty_runs, forget_old_marks
from hpcflow.storage.files import size_of
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.runs import (
    InvalidRunLinkError,
    invalid_link_message,
    is_gone,
    is_path_untrusted,
    is_purged,
    linked,
    run_ids,
)

_BATCH_RUNS = 200
#: A concurrent write to the same run is rare, but not ten times in a row.
_TRIES = 10
#: Missing after a purge.
_PARAMS: Final = RunDir(Path()).params_json.name


@dataclass
class Summary:
    """The result of a pass over run directories.

    Attributes:
        runs: number of examined runs.
        changed: ids of the runs whose rows changed.
        lines: lines that were read, good and bad.
        skipped_lines: bad lines: torn, foreign, or of a newer version.
        gone: ids of the runs whose directory, or a file of it, is gone; their rows stay.
        purged: ids of the runs whose directory is gone, although its scratch is mounted.
        unread: ids of the runs whose current journal is unknown.
        problems: runs and files that could not be read, and files that shrank; one text for each.
    """

    runs: int = 0
    changed: list[str] = field(default_factory=list)
    lines: int = 0
    skipped_lines: int = 0
    gone: list[str] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def leave_out(self, run_id: str, why: str) -> None:
        """Record that nothing of this run was written, because of a value in its files."""
        self.unread.add(run_id)
        self.problems.append(f"{run_id}: its new data is not in the ledger: {why[:200]}")


def catch_up(ledger: Ledger, run_dirs: Iterable[RunDir]) -> Summary:
    """Bring the ledger up to date with the files of these runs.

    A run that cannot be read becomes a problem in the summary and keeps its rows. If the database
    fails, earlier runs are written.
    """
    return _project(ledger, run_dirs, from_zero=False)


def rebuild(ledger: Ledger, run_dirs: Iterable[RunDir]) -> Summary:
    """Read all files of these runs again and replace their rows, run by run.

    Other runs keep their rows, and so do those that cannot be read any more or have lost their
    journal. If the database fails, every run is either as before or new.
    """
    return _project(ledger, run_dirs, from_zero=True)


def catch_up_home(
    ledger: Ledger,
    home: Home,
    *,
    user: str | None = None,
    now: datetime | None = None,
    own: OwnRuns | None = None,
) -> Summary:
    """Bring the ledger up to date for a whole home, reading only runs that may have changed.

    These are unknown runs, active runs, runs that came to rest minutes ago, and marked runs
    (:mod:`hpcflow.storage.dirty_marks`). Runs that were deleted unsubmitted are forgotten
    (:mod:`hpcflow.projection.gone`).

    Args:
        user: the user whose unsubmitted runs may be forgotten, in a shared ledger.
        own: the runs of this home, if the caller uses it further.
    """
    now = now or SystemClock().now()
    mine = set(run_ids(home))
    marked = dirty_runs(home)
    known = ledger.run_ids(user=user)
    owners = ledger.owners(mine - known) if user is not None else {}
    if taken := _owned_by_others(home, owners, user):
        rebuild(ledger, taken)
    known.update(owners)
    to_correct = ledger.ended_by_older()
    wanted = mine & (ledger.unsettled(now) | (mine - known) | set(marked) | to_correct)
    ids = sorted(wanted)
    far = ledger.how_far([run_id for run_id in ids if run_id not in to_correct])
    invalid_links: list[str] = []
    run_dirs = _grown(far, home, own or OwnRuns(home), ids, invalid_links.append)
    summary = catch_up(ledger, run_dirs)
    summary.runs = len(ids)
    summary.problems += invalid_links
    gone = set(summary.gone)
    purged = [each for each in run_dirs if each.path.name in gone and is_purged(each)]
    purged = without_other_clusters(ledger, purged)
    summary.purged = [each.path.name for each in purged]
    back_up_of_purged(ledger, purged)
    forget_unsent(ledger, known - mine, user=user)
    read = [
        each for each in marked if each not in summary.unread and not is_path_untrusted(home, each)
    ]
    forget_old_marks(home, read)
    return summary


def _grown(
    known: Mapping[str, HowFar],
    home: Home,
    own: OwnRuns,
    ids: Sequence[str],
    warn: Callable[[str], object],
) -> list[RunDir]:
    """Return the directories of the ``ids`` whose files have another length than was read.

    A few stats for each, without reading their rows: of ten thousand active runs, most have written
    nothing since the last read. Unknown runs and unreadable files are included: the
    reader finds out.

    Args:
        known: how far the ledger has read each run.
        warn: called with one line for each link that does not lead to a run directory.
    """
    found = []
    warnings: dict[str, None] = {}
    for run_id in ids:
        # Strings, not paths: this runs ten thousand times in a round.
        try:
            folder = own.link_of(run_id)
        except InvalidRunLinkError as error:
            warnings[invalid_link_message(home, run_id, error)] = None
            continue
        except OSError:
            continue  # it was deleted meanwhile
        if run_id not in known or not _is_read(home, run_id, folder, known[run_id]):
            found.append(home.run_dir(folder))
    for message in warnings:
        warn(message)
    return found


def _is_read(home: Home, run_id: str, folder: str, far: HowFar) -> bool:
    """Return whether all files have the length that was read, and the run directory is there."""
    offset_of = far.offsets.get
    try:
        if (size_of(f"{home.runs}/{run_id}/{JOURNAL}") or 0) != offset_of(JOURNAL, 0):
            return False
        has_read = False
        for name in (MIRROR, *map(events_of, far.attempts)):
            size_bytes = offset_of(name, 0)
            if (size_of(f"{folder}/{name}") or 0) != size_bytes:
                return False
            has_read |= size_bytes > 0
        if not has_read and size_of(f"{folder}/{_PARAMS}") is None:
            return False  # else a file that was read is there
    except StorageError:
        return False
    return True


def _owned_by_others(home: Home, owners: Mapping[str, str], user: str | None) -> list[RunDir]:
    """Return the runs that the ledger records as another user's, against their own files.

    Another user wrote them into a shared ledger, and hpcflow would submit nothing for them.
    """
    found = []
    for run_dir in linked(home, sorted(owners)):
        with suppress(OSError, ValueError):
            if read_object(run_dir.run_json).get("user") == user != owners[run_dir.path.name]:
                found.append(run_dir)
    return found


def _project(ledger: Ledger, run_dirs: Iterable[RunDir], *, from_zero: bool) -> Summary:
    summary = Summary()
    todo = {run_dir.path.name: run_dir for run_dir in run_dirs}
    summary.runs = len(todo)
    if not from_zero:  # the values are still in the files, so the write would fail again
        summary.unread |= todo.keys() & ledger.misfits
        todo = {run_id: todo[run_id] for run_id in todo if run_id not in ledger.misfits}
    for _ in range(_TRIES):
        ids = list(todo)
        lost: list[str] = []
        for begin in range(0, len(ids), _BATCH_RUNS):
            batch = {run_id: todo[run_id] for run_id in ids[begin : begin + _BATCH_RUNS]}
            of_batch, at_rest = _project_batch(ledger, batch, from_zero, summary)
            lost += of_batch
            back_up_rows(ledger, [batch[run_id] for run_id in at_rest])
        if not lost:
            return summary
        todo = {run_id: todo[run_id] for run_id in lost}
    raise LedgerError(
        f"other processes keep writing to {', '.join(sorted(todo))} at the same time",
        next_action="repeat the command in a moment",
    )


def _project_batch(
    ledger: Ledger, run_dirs: dict[str, RunDir], from_zero: bool, summary: Summary
) -> tuple[list[str], list[str]]:
    """Project with few transactions.

    Returns:
        ids of runs that another process wrote to, and of those that may be at rest now.
    """
    known = ledger.known(list(run_dirs))
    # If a row of a run is damaged, its rows are rebuilt.
    damaged = ledger.bytes_read([run_id for run_id in run_dirs if run_id not in known])
    changes: dict[str, tuple[Change, RunReader]] = {}
    for run_id, run_dir in run_dirs.items():
        try:
            found = _read(
                run_dir,
                known.get(run_id),
                from_zero,
                summary,
                # Unreadable events do not block a run, but a rebuild keeps its rows instead.
                is_lenient=not (from_zero and run_id in known),
                bytes_before=damaged.get(run_id),
            )
        except FOLD_ERRORS as error:
            ledger.misfits.add(run_id)
            summary.leave_out(run_id, f"{type(error).__name__}: {error}")
            continue
        except StorageError as error:
            summary.unread.add(run_id)
            if not is_gone(run_dir):
                summary.problems.append(f"{run_id}: {error.message}")
            else:
                summary.gone.append(run_id)
            continue
        if found is not None:
            changes[run_id] = found
    lost, misfits = apply(ledger, [change for change, _ in changes.values()])
    for run_id, why in misfits.items():
        summary.leave_out(run_id, why)
    at_rest = []
    for run_id, (change, reader) in changes.items():
        if run_id not in lost and run_id not in misfits:
            summary.changed.append(run_id)
            summary.lines += reader.lines
            summary.skipped_lines += reader.skipped_lines
            if not from_zero and may_be_at_rest(change.run):
                at_rest.append(run_id)
    return lost, at_rest


def _read(
    run_dir: RunDir,
    known: Known | None,
    from_zero: bool,
    summary: Summary,
    *,
    is_lenient: bool,
    bytes_before: int | None = None,
    may_use_backup: bool = True,
    reads_journal_again: bool = False,
) -> tuple[Change, RunReader] | None:
    """Return the change of one run; None if there is none."""
    # If a file on scratch was read before, its absence tells the same without another stat.
    has_read = known is not None and _has_read_scratch(known)
    if known is not None and not from_zero and has_older_end(known):
        from_zero = reads_journal_again = True
    is_away = (from_zero or not has_read) and is_gone(run_dir)
    if known is not None and from_zero and (is_away or has_lost_journal(known, run_dir)):
        # Its events, or the records of its jobs, are in no file any more.
        summary.gone.append(run_dir.path.name)
        found = _read_journal_again(run_dir, known) if reads_journal_again else None
        summary.unread |= {run_dir.path.name} if found is None else set()
        return found
    backup = read_backup(run_dir) if may_use_backup and known is None and is_away else None
    if backup is not None:
        known, from_zero = backup.known, False
    reader = RunReader(run_dir, None if from_zero else known, is_lenient=is_lenient)
    try:
        change = reader.read()
    except (FileShrankError, RunChangedError, *FOLD_ERRORS) as error:
        if backup is not None:  # it is of another journal
            return _read(run_dir, None, True, summary, is_lenient=is_lenient, may_use_backup=False)
        if not isinstance(error, FileShrankError):
            if known is None or from_zero:  # the rows are not those that were written
                raise
            return _read(run_dir, known, True, summary, is_lenient=is_lenient)
        if error.is_journal or not is_gone(run_dir):  # else its program has created the file anew
            problem = f"{run_dir.path.name}: {error}; it was read again from its start"
            summary.problems.append(problem)
        return _read(
            run_dir,
            known,
            True,
            summary,
            is_lenient=is_lenient,
            reads_journal_again=not error.is_journal,
        )
    summary.problems += [f"{run_dir.path.name}: {problem}" for problem in reader.problems]
    if reader.gone or is_away:
        summary.gone.append(run_dir.path.name)
    if JOURNAL in reader.gone:
        summary.unread.add(run_dir.path.name)
    if backup is not None:
        return backup.with_change(change), reader
    if change is None:
        return None
    if known is not None:
        change.from_zero = from_zero
        change.bytes_before = known.run.bytes_read
    elif bytes_before is not None:
        change.from_zero, change.bytes_before = True, bytes_before
    return change, reader


def _has_read_scratch(known: Known) -> bool:
    return any(each.path != JOURNAL and each.offset_bytes for each in known.sources)


def _read_journal_again(run_dir: RunDir, known: Known) -> tuple[Change, RunReader] | None:
    """Read the journal of a run whose directory is gone from its start; None if that fails.

    The rows keep what its events reported.
    """
    if has_lost_journal(known, run_dir):
        return None
    reader = RunReader(run_dir, without_journal(known), limits={JOURNAL: MAX_LINES_FILE_BYTES})
    try:
        change = reader.read()
    except (RunChangedError, *FOLD_ERRORS):  # the rows are not those that were written
        return None
    if change is None:
        return None
    change.bytes_before = known.run.bytes_read
    return change, reader
