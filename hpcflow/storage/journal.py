"""The journal of a run: append a record, read them all. :mod:`hpcflow.history` interprets them.

A run is created with an empty journal. A run directory without one has lost it, and with it the
state of the run's jobs. hpcflow appends nothing there until the user resumes or cancels the run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from hpcflow.errors import StorageError, shell_word
from hpcflow.history import RunHistory
from hpcflow.model import lost_journal
from hpcflow.model.journal import JournalRecord, parse_record_or_none
from hpcflow.runtime.reading import open_regular, read_lines
from hpcflow.storage.files import append_line_durably, size_of, storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone, require_no_link


class Journal:
    """The journal of one run, as long as a command or a round works on the run.

    It is parsed once, and again only if the file has grown by other means than :meth:`append`. What
    is appended is added to the history.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self._history = RunHistory()
        self._size_bytes = -1  # nothing is read yet

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run_dir.path.name

    @property
    def history(self) -> RunHistory:
        """What the journal says now; empty if it is lost. Each use looks at the file again.

        Raises:
            StorageError: it cannot be read.
        """
        size_bytes = self._size_now()
        if size_bytes != self._size_bytes:
            self._history = RunHistory.of(read(self.run_dir))
            self._size_bytes = size_bytes
        return self._history

    @property
    def size_bytes(self) -> int:
        """The size of what is in memory, as lines; at most 0 before the first read."""
        return self._size_bytes

    def _size_now(self) -> int:
        """The size of the file, 0 if it is lost.

        The file is opened: NFS then asks the server. For a stat alone, it may answer from a cache
        that is a minute old, and what another node appended would not be seen.
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
        """Append ``records`` with one write; they are on the disk when this returns.

        Args:
            begins: start a new journal if the old one is lost, because the user requests it.

        Raises:
            StorageError: they could not be written, or not all; or the journal is lost.
        """
        if not records:
            return
        written = append_all(self.run_dir, records, begins=begins)
        self._history = self._history.plus(*records)
        self._size_bytes += written

    def require(self) -> None:
        """Refuse to continue without a journal: the state of the run's jobs is unknown.

        Raises:
            StorageError: the journal is lost.
        """
        require(self.run_dir)


def append(run_dir: RunDir, record: JournalRecord, *, begins: bool = False) -> None:
    """Add ``record``; it is on the disk when this returns.

    Args:
        begins: start a new journal if the old one is lost, because the user requests it.

    Raises:
        StorageError: it could not be written; or the journal is lost.
    """
    _append(run_dir, [record], begins=begins)


def append_all(run_dir: RunDir, records: Sequence[JournalRecord], *, begins: bool = False) -> int:
    """Append ``records``, which belong together, with one write: a crash leaves the first of them.

    Returns:
        The size of their lines, in bytes.

    Raises:
        StorageError: they could not be written; or the journal is lost.
    """
    return _append(run_dir, records, begins=begins) if records else 0


def _append(run_dir: RunDir, records: Sequence[JournalRecord], *, begins: bool) -> int:
    _require_run(run_dir)
    if not begins:
        require(run_dir)
    lines = "".join(record.to_line() for record in records).encode()
    append_line_durably(run_dir.journal, lines, must_exist=not begins)
    return len(lines)


def is_lost(run_dir: RunDir) -> bool:
    """Return whether a run directory has no journal.

    Raises:
        StorageError: the directory cannot be read.
    """
    return size_of(run_dir.journal) is None


def require(run_dir: RunDir) -> None:
    """Refuse to continue without a journal: the state of the run's jobs is unknown.

    Raises:
        StorageError: the journal is lost.
    """
    if is_lost(run_dir):
        raise StorageError(
            f"cannot continue run {run_dir.path.name}: {lost_journal.WHY}",
            next_action=lost_journal.ADVICE.format(run=shell_word(run_dir.path.name)),
        )


def read(run_dir: RunDir) -> list[JournalRecord]:
    """Return the records that are whole and known to this version, oldest first.

    Skipped are lines that are torn, damaged, too long, or of a newer version. In memory are the
    records, and one line.

    Raises:
        StorageError: the journal cannot be read, or there is a link in the place of the run
            directory.
    """
    require_no_link(run_dir)
    try:
        found = (parse_record_or_none(line) for line in read_lines(run_dir.journal) if line)
        return [record for record in found if record is not None]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error("read", run_dir.journal, error) from error


def _require_run(run_dir: RunDir) -> None:
    """Begin no journal where there is no run: with it, what was deleted would look like one.

    Raises:
        StorageError: the run directory is gone, or there is a link in its place.
    """
    require_no_link(run_dir)
    if is_gone(run_dir):
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(run_dir.journal))
        raise storage_error("append to", run_dir.journal, error)
