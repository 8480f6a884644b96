"""The journal of a run: append a record, read them all. What they mean is in model and ledger.

A run is created with an empty journal. A run directory without one has lost it, and with it the
state of the run's jobs. hpcflow appends nothing there until the user resumes or cancels the run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from hpcflow.errors import StorageError, shell_word
from hpcflow.model import lost_journal
from hpcflow.model.journal import JournalRecord, parse_record_or_none
from hpcflow.runtime.reading import read_lines
from hpcflow.storage.files import append_line_durably, size_of, storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone, require_no_link


class Journal(NamedTuple):
    """All that a journal says, oldest first, and how many of its lines say nothing."""

    records: list[JournalRecord]
    skipped_lines: int


def append(run_dir: RunDir, record: JournalRecord, *, begins: bool = False) -> None:
    """Add ``record``; it is on the disk when this returns.

    Args:
        begins: start a new journal if the old one is lost, because the user requests it.

    Raises:
        StorageError: it could not be written; or the journal is lost.
    """
    _append(run_dir, [record], begins=begins)


def append_all(run_dir: RunDir, records: Sequence[JournalRecord]) -> None:
    """Add ``records``, which belong together, with one write: a crash leaves the first of them.

    Raises:
        StorageError: they could not be written; or the journal is lost.
    """
    if records:
        _append(run_dir, records, begins=False)


def _append(run_dir: RunDir, records: Sequence[JournalRecord], *, begins: bool) -> None:
    _require_run(run_dir)
    if not begins:
        require(run_dir)
    text = "".join(record.to_line() for record in records)
    append_line_durably(run_dir.journal, text, must_exist=not begins)


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
    """The records that are whole and known to this version, oldest first.

    Raises:
        StorageError: the journal cannot be read.
    """
    return load(run_dir).records


def load(run_dir: RunDir) -> Journal:
    """The same, with the number of lines that were skipped: torn, damaged, too long, of a newer
    version. In memory are the records, and one line.

    A last line without its end is torn or being written: it is not there yet, and not counted.

    Raises:
        StorageError: the journal cannot be read, or there is a link in the place of the run
            directory.
    """
    require_no_link(run_dir)
    records, skipped = [], 0
    try:
        for line in filter(None, read_lines(run_dir.journal)):
            record = parse_record_or_none(line)
            if record is None:
                skipped += 1
            else:
                records.append(record)
    except FileNotFoundError:
        return Journal([], 0)
    except OSError as error:
        raise storage_error("read", run_dir.journal, error) from error
    return Journal(records, skipped)


def _require_run(run_dir: RunDir) -> None:
    """Begin no journal where there is no run: with it, what was deleted would look like one.

    Raises:
        StorageError: the run directory is gone, or there is a link in its place.
    """
    require_no_link(run_dir)
    if is_gone(run_dir):
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(run_dir.journal))
        raise storage_error("append to", run_dir.journal, error)
