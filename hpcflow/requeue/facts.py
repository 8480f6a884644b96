"""Facts about a run for the policy, from its rows in the ledger; and whether these are current."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from hpcflow.clock import from_text, later
from hpcflow.errors import StorageError, shell_word
from hpcflow.launch.submission import SENDING_TAKES
from hpcflow.ledger.rows import AttemptRow, Known
from hpcflow.model.retry import Retry
from hpcflow.model.run import Run
from hpcflow.model.state import AttemptState, Cause
from hpcflow.requeue.policy import (
    CRASHES_WITHIN,
    NO_PROGRESS,
    AttemptFacts,
    Decision,
    Facts,
    Stage,
)
from hpcflow.restore.local import newest_found
from hpcflow.sites.schema import Site
from hpcflow.storage.files import read_from, size_of
from hpcflow.storage.layout import RunDir

#: How long to wait after Slurm deferred a job; doubled each time in a row, up to the maximum.
_DELAY_S: Final = 30.0
_DELAY_MAX_S: Final = 600.0
_MOST_DOUBLINGS: Final = 10
#: Decisions that a later round has to confirm by its clock.
_TIMED_OUT: Final = frozenset({("wait", "forgotten"), ("wait", "deadline")})
_PORTION_BYTES: Final = 1 << 16


def facts_of(
    known: Known,
    *,
    mem_max_mb: int | None = None,
    is_journal_lost: bool = False,
    is_purged: bool = False,
    is_mirrored: bool = False,
) -> Facts:
    """Return the facts of one run; the arguments are as in :class:`Facts`. Pure."""
    journal = known.run.journal
    rows = sorted(known.attempts, key=lambda row: row.attempt)
    attempts = [_attempt(row) for row in rows]
    executed = [each.number for each in attempts if each.stage is not Stage.VOID]
    decided = journal.get("decided", {})
    is_decided = decided.get("after") == (executed[-1] if executed else 0)
    is_timed_out = is_decided and (decided["action"], decided["rule"]) in _TIMED_OUT
    return Facts(
        run_id=known.run.run_id,
        created_at=known.run.created_at,
        attempts=attempts,
        counted_from=journal.get("counted_from", 1),
        extends=journal.get("extends"),
        is_trial=known.run.parent_sweep is not None,
        is_held="held_at" in journal,
        is_cancelled="cancel_requested_at" in journal,
        was_stopped=is_decided and decided["action"] == "stop",
        is_attended=(is_decided and not is_timed_out) or "resumed_at" in journal,
        timed_out_at=from_text(decided["at"]) if is_timed_out else None,
        put_off_at=_put_off_at(rows[-1]) if rows else None,
        delayed_until=_delayed_until(rows[-1] if rows else None, journal),
        mem_max_mb=mem_max_mb,
        is_journal_lost=is_journal_lost,
        is_purged=is_purged,
        is_mirrored=is_mirrored,
    )


def decided(
    known: Known,
    run: Run,
    run_dir: RunDir,
    site: Site,
    rule: Callable[[Facts, Retry, datetime], Decision],
    now: datetime,
    *,
    is_journal_lost: bool = False,
    is_purged: bool = False,
) -> tuple[Facts, Decision]:
    """Return the facts of a run, and what ``rule`` decides from them.

    If it finds no progress, the newest complete checkpoint on scratch is a fact too: its event may
    have been purged or torn.
    """
    partition, policy = site.partitions.get(run.partition), run.spec.retry
    mem_max_mb = partition.mem_per_node_mb if partition else None
    facts = facts_of(
        known,
        mem_max_mb=mem_max_mb,
        is_journal_lost=is_journal_lost,
        is_purged=is_purged,
        is_mirrored=run.mirror is not None,
    )
    decision = rule(facts, policy, now)
    if decision.rule != NO_PROGRESS or (found := newest_found(run_dir)) is None:
        return facts, decision
    attempts = [
        replace(each, checkpoint=max(found.train_step, each.checkpoint or 0))
        if each.number == found.attempt
        else each
        for each in facts.attempts
    ]
    facts = replace(facts, attempts=attempts)
    return facts, rule(facts, policy, now)


def no_submission_in_progress(known: Known, now: datetime) -> bool:
    """Return whether no process can be in sbatch for a run: a submission journals its intent just
    before."""
    return now - (known.run.journal_at or known.run.created_at) > SENDING_TAKES


def is_stale(known: Known, run_dir: RunDir) -> bool:
    """Return whether the journal has records that the ledger has not read, such as a new request.

    Raises:
        StorageError: it is shorter than what the ledger has read.
    """
    name = run_dir.journal.name
    read = next((each.offset_bytes for each in known.sources if each.path == name), 0)
    if (size_of(run_dir.journal) or 0) < read:
        raise StorageError(
            "the journal is truncated; the record of its jobs is lost",
            next_action=f"put back {shell_word(run_dir.journal)} from a backup; if the run was "
            f"mirrored: hpcflow restore {known.run.run_id}; else start a new run: hpcflow run "
            "CONFIG",
        )
    at = read
    while data := read_from(run_dir.journal, at, _PORTION_BYTES):
        if b"\n" in data:
            return True
        at += len(data)  # a line that is still being written
    return False


def was_looked_for(known: Known, here: int | None) -> bool:
    """Return whether the mirror was searched since the last attempt ended, and has no newer
    checkpoint than scratch.

    Fetching an older checkpoint is not a search. A checkpoint that was found and is lost again is
    searched again; one that was not found is not, so the searches end.

    Args:
        here: train step of the newest complete checkpoint on scratch.
    """
    # The next attempt's intent removes this record.
    newest: int | None = known.run.journal.get("restored", {}).get("newest")
    return newest is not None and newest <= (here or 0)


def _attempt(row: AttemptRow) -> AttemptFacts:
    stage = {
        AttemptState.ENDED.value: Stage.OVER,
        AttemptState.WITHDRAWN.value: Stage.VOID,
    }.get(row.state, Stage.OPEN)
    return AttemptFacts(
        number=row.attempt,
        stage=stage,
        cause=Cause(row.cause) if stage is Stage.OVER and row.cause else None,
        ended_at=_ended_at(row),
        has_run=row.started_at is not None,
        checkpoint=row.report.get("saved"),
        mem_mb=row.journal.get("intended", {}).get("mem_mb"),
        is_ending=row.state == AttemptState.COMPLETING.value,
        crash=_crash(row),
    )


def _crash(row: AttemptRow) -> str | None:
    """Return the digest of the log's end if the attempt crashed at its start; see
    :class:`AttemptFacts`."""
    report = row.report
    if row.started_at is None or row.ended_at is None or "saved" in report:
        return None
    has_trained = (report.get("train_step") or 0) > (report.get("began_at") or 0)
    if has_trained or row.ended_at - row.started_at > CRASHES_WITHIN:
        return None
    digest: str | None = row.journal.get("ended", {}).get("log_digest")
    return digest


def _ended_at(row: AttemptRow) -> datetime | None:
    """Return when it ended, at most when that was recorded: the job's clock may be wrong."""
    written = row.journal.get("ended", {}).get("at")
    if row.ended_at is None or written is None:
        return row.ended_at
    return min(row.ended_at, from_text(written))


def _put_off_at(last: AttemptRow) -> datetime | None:
    """Return when Slurm last deferred the submission, or it was withdrawn."""
    journal = last.journal
    if "refused" in journal and journal["refused"].get("retryable"):
        return from_text(journal["refused"]["at"])
    return from_text(journal["withdrawn"]["at"]) if "withdrawn" in journal else None


def _delayed_until(last: AttemptRow | None, journal: dict[str, Any]) -> datetime | None:
    """Return when to retry a deferred submission; None if the last attempt was accepted."""
    put_off_at = _put_off_at(last) if last is not None else None
    if put_off_at is None:
        return None
    doublings = min(max(0, journal.get("delays", 1) - 1), _MOST_DOUBLINGS)
    delay = timedelta(seconds=min(_DELAY_S * 2.0**doublings, _DELAY_MAX_S))
    return later(put_off_at, delay)
