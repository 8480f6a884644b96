"""Handle the rows of runs whose files are gone."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

from hpcflow.ledger.queries import OLDER_PURGED_RULE
from hpcflow.ledger.rows import Known
from hpcflow.ledger.store import Ledger
from hpcflow.projection.reading import JOURNAL
from hpcflow.sites.slurm_conf import configured_name
from hpcflow.storage.files import size_of
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone


def has_older_end(known: Known) -> bool:
    """Return whether an older hpcflow ended an attempt in the ledger alone, because of a purge."""
    return any(row.rule == OLDER_PURGED_RULE for row in known.attempts)


def is_of_another_cluster(known: Known, here: str | None) -> bool:
    """Return whether the run is of a cluster that shares this home, and may have its own scratch.

    Args:
        here: the ClusterName of slurm.conf; None if unknown.
    """
    intents = (row.journal.get("intended") for row in known.attempts)
    names = (intent.get("cluster") for intent in intents if isinstance(intent, dict))
    clusters = [name for name in names if isinstance(name, str)]  # rows may be damaged
    return here is not None and bool(clusters) and here not in clusters


def without_other_clusters(ledger: Ledger, run_dirs: Sequence[RunDir]) -> list[RunDir]:
    """Return those of the runs that are not of another cluster."""
    if not run_dirs:
        return []
    here = configured_name()
    known = ledger.known([each.path.name for each in run_dirs])
    others = {run_id for run_id, each in known.items() if is_of_another_cluster(each, here)}
    return [each for each in run_dirs if each.path.name not in others]


def without_journal(known: Known) -> Known:
    """Return the rows as if the journal was not read yet; they keep what the events reported."""
    changed = {name: at for name, at in known.run.journal.items() if name == "changed_at"}
    return Known(
        replace(known.run, journal=changed),
        [replace(row, journal={}) for row in known.attempts],
        [source for source in known.sources if source.path != JOURNAL],
    )


def has_lost_journal(known: Known, run_dir: RunDir) -> bool:
    """Return whether the journal was read once and no longer exists; may raise StorageError."""
    was_read = any(each.path == JOURNAL and each.offset_bytes > 0 for each in known.sources)
    return was_read and size_of(run_dir.journal) is None


def forget_unsent(ledger: Ledger, strangers: Set[str], *, user: str | None = None) -> None:
    """Delete the rows of runs in ``strangers`` that were deleted before any submission.

    During a submission that is then refused, a pass can read the run; later nothing could correct
    the row. A run on another machine's own scratch is kept: its folder is not visible here.

    Args:
        strangers: ids of the runs in the ledger without a link in this home.
        user: whose rows; None for all users'.
    """
    if not strangers:
        return
    unsent = [(run_id, RunDir(Path(path))) for run_id, path in ledger.unsent(user)]
    ghosts = [
        run_id
        for run_id, run_dir in unsent
        if run_id in strangers and is_gone(run_dir) and run_dir.path.parent.is_dir()
    ]
    if ghosts:
        ledger.forget_unsent(ghosts)
