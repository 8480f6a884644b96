"""End the runs whose directory is gone, in the ledger."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hpcflow.ledger.derive import derive_attempt, derive_run
from hpcflow.ledger.fold import AttemptFold, RunFold
from hpcflow.ledger.queries import PURGED_RULE
from hpcflow.ledger.rows import OVER, AttemptRow, Change, Known
from hpcflow.ledger.store import Ledger
from hpcflow.model.state import RunState, cause_of_end
from hpcflow.projection.applying import apply
from hpcflow.projection.reading import FOLD_ERRORS, JOURNAL
from hpcflow.sites.slurm_conf import configured_name
from hpcflow.storage.files import size_of
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone


def end_purged(ledger: Ledger, run_dirs: Sequence[RunDir]) -> list[str]:
    """End the attempts of these runs, whose directory is gone; return the ids of runs newly ended.

    The ends of their jobs cannot be journaled, so the runs would stay active for ever. A job that
    reported its exit ended so; the others vanished. If all attempts had ended, the last one records
    why none follows.
    """
    if not run_dirs:
        return []
    known = ledger.known([run_dir.path.name for run_dir in run_dirs])
    here = configured_name()
    changes = []
    for each in known.values():
        # Rows that hpcflow did not write: `hpcflow ledger rebuild` replaces them.
        with suppress(*FOLD_ERRORS):
            if not _is_of_another_cluster(each, here) and (change := _ended(each)):
                changes.append(change)
    return _write(ledger, changes)


def _write(ledger: Ledger, changes: list[Change]) -> list[str]:
    """Write the changes; return the ids of the written runs. The next pass retries the others."""
    late, misfits = apply(ledger, changes)
    return [
        run_id
        for change in changes
        if (run_id := change.run.run_id) not in late and run_id not in misfits
    ]


def purged_warning(run_id: str) -> str:
    """Return the warning about a run that :func:`end_purged` has ended."""
    return (
        f"{run_id}: its run directory is gone; hpcflow submits no job until it is restored; "
        f"if it was mirrored: hpcflow restore {run_id}; to stop the run, and a job of it that "
        f"still runs: hpcflow cancel {run_id}"
    )


def counts_as_purged(known: Known) -> bool:
    """Return whether the ledger records the run's directory as gone."""
    said = (row.journal.get("ended") for row in known.attempts)
    return any(isinstance(ended, dict) and ended.get("rule") == PURGED_RULE for ended in said)


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


def _is_of_another_cluster(known: Known, here: str | None) -> bool:
    """Return whether the run is from a cluster that shares this home but has its own scratch."""
    clusters = {row.journal.get("intended", {}).get("cluster") for row in known.attempts} - {None}
    return here is not None and bool(clusters) and here not in clusters


def _ended(known: Known) -> Change | None:
    """Return the rows with an end for every attempt that has none; None if nothing changes."""
    run_id = known.run.run_id
    changed = [_ended_attempt(row) for row in known.attempts if row.state not in OVER]
    if not changed and known.run.state == RunState.WAITING.value and not counts_as_purged(known):
        changed = [_without_successor(row) for row in known.attempts[-1:]]
    if not changed:
        return None
    attempts = {row.attempt: row for row in (*known.attempts, *changed)}
    row = replace(known.run)
    fold = RunFold(run_id, journal=known.run.journal)
    derive_run(row, fold, [attempts[number] for number in sorted(attempts)])
    return Change(row, changed, [], [], bytes_before=known.run.bytes_read)


def _without_successor(row: AttemptRow) -> AttemptRow:
    journal = {**row.journal, "ended": {**row.journal.get("ended", {}), "rule": PURGED_RULE}}
    return derive_attempt(row.run_id, row.attempt, AttemptFold(journal, row.report))


def _ended_attempt(row: AttemptRow) -> AttemptRow:
    # Without a time, which is unknown: the hours until a pass noticed must not count for the job.
    ended = {"cause": cause_of_end("", row.exit_code).value, "rule": PURGED_RULE}
    fold = AttemptFold({**row.journal, "ended": ended}, row.report)
    return derive_attempt(row.run_id, row.attempt, fold)
