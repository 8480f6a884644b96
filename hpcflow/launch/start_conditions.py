"""Which of ``resources.dependency`` and ``resources.begin`` apply to the next attempt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from hpcflow.config.overrides import parse_override
from hpcflow.errors import SpecError
from hpcflow.launch.submission import read_claim
from hpcflow.model.journal import Changed, Intended, JournalRecord, Observed
from hpcflow.rendering.directives import START_CONDITIONS
from hpcflow.storage.layout import RunDir


def start_conditions(run_dir: RunDir, records: Sequence[JournalRecord]) -> list[str]:
    """Return the keys for which no attempt has started since they were set.

    Once an attempt has started, the condition was met. Slurm may have forgotten the jobs that a
    dependency names, and would refuse it.

    Raises:
        StorageError: it cannot be read whether a job has started an attempt.
    """
    return [key for key in START_CONDITIONS if not _is_met(key, run_dir, records)]


def _is_met(key: str, run_dir: RunDir, records: Sequence[JournalRecord]) -> bool:
    sent: set[int] = set()
    started: set[int] = set()
    for record in records:
        if isinstance(record, Changed) and _sets(record, key):
            sent, started = set(), set()
        elif isinstance(record, Intended):
            sent.add(record.attempt)
        elif isinstance(record, Observed) and record.started_at is not None:
            started.add(record.attempt)
    return any(each in started or read_claim(run_dir, each) is not None for each in sent)


def _sets(record: Changed, key: str) -> bool:
    for override in record.overrides:
        with suppress(SpecError):  # the journal may come from a store
            resources = parse_override(override).data.get("resources")
            if isinstance(resources, dict) and key in resources:
                return True
    return False
