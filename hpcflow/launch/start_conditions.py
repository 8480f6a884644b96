"""Which of ``resources.dependency`` and ``resources.begin`` apply to the next attempt."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from hpcflow.config.merge import parse_override
from hpcflow.errors import SpecError
from hpcflow.history import RunHistory
from hpcflow.launch.submission import read_claim
from hpcflow.model.journal import Changed
from hpcflow.rendering.directives import START_CONDITIONS
from hpcflow.storage.layout import RunDir


def start_conditions(run_dir: RunDir, history: RunHistory) -> list[str]:
    """Return the keys for which no attempt has started since they were set.

    Once an attempt has started, the condition was met. Slurm may have forgotten the jobs that a
    dependency names, and would refuse it.
    """
    return [key for key in START_CONDITIONS if not _is_met(key, run_dir, history)]


def _is_met(key: str, run_dir: RunDir, history: RunHistory) -> bool:
    return any(
        any(each.started_at is not None for each in attempt.observed)
        or read_claim(run_dir, number) is not None
        for number, attempt in history.attempts_since(partial(_sets, key)).items()
    )


def _sets(key: str, record: Changed) -> bool:
    for override in record.overrides:
        with suppress(SpecError):  # the journal may come from a store
            resources = parse_override(override).data.get("resources")
            if isinstance(resources, dict) and key in resources:
                return True
    return False
