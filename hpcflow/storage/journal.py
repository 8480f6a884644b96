"""Append records to the journal of a run, and read them. :mod:`hpcflow.history` interprets them.

A run is created with an empty journal. If the journal is missing, the state of the run's jobs is
lost. Then hpcflow appends nothing until the user resumes or cancels the run.

Functions that read it raise StorageError on failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from hpcflow.errors import StorageError, shell_word
from hpcflow.history import CheckpointHistory, RunHistory
from hpcflow.model import lost_journal
from hpcflow.model.journal import JournalRecord, parse_record_or_none
from hpcflow.runtime.reading import open_regular, read_lines
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import FILE_MODE, append_line_durably, size_of
from hpcflow.storage.layout import RunDir

_ABOUT_CHECKPOINTS: Final = re.compile(rb'"(?:checkpoint_removed|restored)"')


class Journal:
    """The journal of one run, for one command or tick.

    It is parsed once, and again only if the file grew by other means than :meth:`append`.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self._history = RunHistory()
        self._size_bytes = -1  # nothing is read yet

    @property
    def run_id(self) -> str:
        return self.run_dir.path.name

    @property
    def history(self) -> RunHistory:
        """Return the history; empty if the journal is lost. Each use checks the file's size."""
        size_bytes = self._size_now()
        if size_bytes != self._size_bytes:
            self._history = RunHistory.of(read(self.run_dir))
            self._size_bytes = size_bytes
        return self._history

    @property
    def size_bytes(self) -> int:
        """Return the size of the records in memory, as lines; at most 0 before the first read."""
        return self._size_bytes

    def _size_now(self) -> int:
        """Return the size of the file, 0 if it is lost.

        The file is opened, so that NFS asks the server. The answer to a stat alone can be a minute
        old, without the records that another node appended.
        """
        try:
            descriptor = open_regular(self.run_dir.journal)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise storage_error("read", self.run_dir.journal, error) from error
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def append(self, *records: JournalRecord, begins: bool = False) -> None:
        """Append ``records`` with one write, and sync it.

        Args:
            begins: start a new journal if the old one is lost, at the user's request.

        Raises:
            StorageError: some records could not be written, or the journal is lost.
        """
        if not records:
            return
        written = append_all(self.run_dir, records, begins=begins)
        self._history = self._history.plus(*records)
        self._size_bytes += written

    def require(self) -> None:
        """Raise StorageError if the journal is lost: the state of the run's jobs is unknown."""
        require(self.run_dir)


def append(run_dir: RunDir, record: JournalRecord, *, begins: bool = False) -> None:
    """Append ``record`` and sync it; see :meth:`Journal.append`."""
    _append(run_dir, [record], begins=begins)


def append_all(run_dir: RunDir, records: Sequence[JournalRecord], *, begins: bool = False) -> int:
    """Append ``records`` with one write, sync it, and return its size in bytes.

    After a crash, the first of them may be there without the others. See :meth:`Journal.append`.
    """
    return _append(run_dir, records, begins=begins) if records else 0


def _append(run_dir: RunDir, records: Sequence[JournalRecord], *, begins: bool) -> int:
    if not begins:
        require(run_dir)
    lines = "".join(record.to_line() for record in records).encode()
    append_line_durably(run_dir.journal, lines, must_exist=not begins)
    write_for_jobs(run_dir, RunHistory.of(records))
    return len(lines)


def write_for_jobs(run_dir: RunDir, history: RunHistory) -> None:
    """Write what jobs must know of ``history`` to the run directory: they do not read the journal.

    If it cannot be written, a restarted job or a standby only exits, or runs once more.
    """
    if not (history.has_completed or history.promoted_standbys) or run_dir.path.is_symlink():
        return
    if history.has_completed:
        with suppress(OSError):
            run_dir.completed.touch(mode=FILE_MODE)
    for attempt, job_id in history.promoted_standbys.items():
        with suppress(OSError):
            run_dir.attempt(attempt).adopted.write_text(f"{job_id}\n")


def is_lost(run_dir: RunDir) -> bool:
    return size_of(run_dir.journal) is None


def require(run_dir: RunDir) -> None:
    """Raise StorageError if the journal is lost: the state of the run's jobs is unknown."""
    if is_lost(run_dir):
        raise StorageError(
            f"cannot continue run {run_dir.path.name}: {lost_journal.WHY}",
            next_action=lost_journal.ADVICE.format(run=shell_word(run_dir.path.name)),
        )


def read(run_dir: RunDir) -> list[JournalRecord]:
    """Return the records, oldest first; skip lines that are damaged, too long, or of a newer
    version.
    """
    return _read(run_dir, bool)


def checkpoint_history(run_dir: RunDir) -> CheckpointHistory:
    """Return what the journal says about checkpoints; the lines of most others are not parsed.

    For reports over thousands of runs: most journals have no such line.
    """
    return CheckpointHistory(tuple(_read(run_dir, _ABOUT_CHECKPOINTS.search)))


def _read(run_dir: RunDir, is_meant: Callable[[bytes], object]) -> list[JournalRecord]:
    with storage_errors("read", run_dir.journal), suppress(FileNotFoundError):
        lines = filter(is_meant, read_lines(run_dir.journal))
        return [record for record in map(parse_record_or_none, lines) if record is not None]
    return []
