"""Record how the log of a failed attempt ends, so that two attempts can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from hpcflow.model.journal import Ended, JournalRecord
from hpcflow.model.state import Cause
from hpcflow.storage.failure import read_failure
from hpcflow.storage.layout import RunDir


def with_log_digest(run_dir: RunDir, records: Iterable[JournalRecord]) -> list[JournalRecord]:
    """Return ``records``; those of attempts that failed have a digest of how their logs end."""
    return [_with_digest(run_dir, record) for record in records]


def _with_digest(run_dir: RunDir, record: JournalRecord) -> JournalRecord:
    if not isinstance(record, Ended) or record.cause is not Cause.FAILED:
        return record
    failure = read_failure(run_dir, record.attempt)
    return record.model_copy(update={"log_digest": failure.digest if failure else None})
