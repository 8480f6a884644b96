"""Compare what a shared ledger says of a run with the run's files, before hpcflow acts on it.

Other users can write rows into a shared ledger. Their rows must not cancel, stop or submit a job of
this user, nor reach a journal. In a ledger of one's own only its owner writes: it is not compared.
"""

from __future__ import annotations

from typing import Any

from hpcflow.errors import StorageError
from hpcflow.ledger.rows import Known
from hpcflow.ledger.store import Ledger
from hpcflow.projection import read_known, rebuild
from hpcflow.requeue.facts import facts_of
from hpcflow.storage.layout import RunDir


def is_confirmed(
    ledger: Ledger, known: Known, run_dir: RunDir, *, reports_of: int | None = None
) -> bool:
    """Whether the same follows from the files of a run as from its rows. If not, its rows are
    rebuilt, and the next round decides.

    Args:
        reports_of: an attempt of which also every report of its job must be the same.

    Raises:
        LedgerError: the database failed.
        StorageError: the files cannot be read.
    """
    if ledger.url.is_own:
        return True
    found = read_known(run_dir, known, progress_of=(reports_of,))
    if _essence(found, reports_of) == _essence(known, reports_of):
        return True
    for problem in rebuild(ledger, [run_dir]).problems:
        raise StorageError(problem)
    return False


def _essence(known: Known, reports_of: int | None) -> tuple[Any, ...]:
    """What decisions and acts follow from. Progress is no part of it: jobs report every second."""
    attempts = sorted(known.attempts, key=lambda row: row.attempt)
    return (
        facts_of(known),
        known.run.site,
        known.run.next_action,
        [(row.attempt, row.job_id, row.state, row.journal) for row in attempts],
        [row.report for row in attempts if row.attempt == reports_of],
    )
