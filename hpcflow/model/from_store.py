"""Which lines of a restored journal are this user's own. The others are from a store, where other
users may write. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hpcflow.model.journal import (
    Accounted,
    Intended,
    JournalRecord,
    Restored,
    Standby,
    Submitted,
)


def own_records(records: Sequence[JournalRecord]) -> Sequence[JournalRecord]:
    """Return the records that are not from a store: those since the last restore of the journal."""
    restored = [
        number for number, each in enumerate(records) if isinstance(each, Restored) and each.journal
    ]
    return records[restored[-1] :] if restored else records


def is_own_word(records: Sequence[JournalRecord], attempt: int) -> bool:
    """Return whether the id of an attempt's job is from Slurm's answer to this user.

    After a restore all else may follow from what was in the store: a claim, a restart, a standby.
    """
    own = own_attempts(records)
    return own is None or attempt in own


def own_attempts(records: Sequence[JournalRecord]) -> set[int] | None:
    """Return the attempts of which :func:`is_own_word` is true; None if of all."""
    own = own_records(records)
    if own is records:
        return None
    said = [each.says if isinstance(each, Standby) else each for each in own]
    sent = [each for each in said if isinstance(each, Submitted)]
    ids = {each.job_id for each in sent if each.how in ("sbatch", "inside")}
    return {each.attempt for each in sent if each.job_id in ids}


def own_mem_mb(records: Sequence[JournalRecord], intent: Intended | None) -> int | None:
    """Return the memory that ``intent`` requested; None if none, or from a store."""
    return intent.mem_mb if intent is not None and intent in own_records(records) else None


def own_bills(records: Sequence[JournalRecord]) -> list[Accounted]:
    """Return the bills that follow from what Slurm told this user."""
    own = own_attempts(records)
    return [
        each
        for each in own_records(records)
        if isinstance(each, Accounted)
        and (each.source == "accounting" or own is None or each.attempt in own)
    ]
