"""Compare the journals of a restored run. Pure.

There may be three sources: the home; the mirror, which is some minutes behind; and the ledger,
which may have read more than the home has, if that is lost or came back from a backup. A journal is
never shortened. If two sources contradict each other, the user must decide.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.history import AttemptHistory, RunHistory
from hpcflow.history.run import is_same_cluster
from hpcflow.ledger.queries import OLDER_PURGED_RULE
from hpcflow.ledger.rows import AttemptRow, Known
from hpcflow.model.journal import (
    CancelRequested,
    Ended,
    Held,
    JournalRecord,
    Resumed,
    Standby,
    Withdrawn,
    parse_record_or_none,
)
from hpcflow.model.state import cause_of_end

#: Kinds of an attempt's records that the ledger keeps, in the order of the journal.
_KINDS: Final = (
    "intended",
    "refused",
    "withdrawn",
    "submitted",
    "observed",
    "stall",
    "ended",
    "accounted",
)
_STOPS: Final = (CancelRequested, Held)
#: Why a run is held whose journal comes from a store,
LOST: Final = "its journal comes from the store, because this home has lost it"
#: and one whose ``run.json`` does.
UNAPPROVED: Final = (
    "what it executes comes from the store, and no user of this home has approved it"
)


def first_difference(one: bytes, other: bytes) -> int | None:
    """Return the first line, counted from 1, that differs; None if one begins with the other."""
    one, other = whole(one), whole(other)
    if one.startswith(other) or other.startswith(one):
        return None
    pairs = zip(one.split(b"\n"), other.split(b"\n"), strict=False)
    return next(line for line, (mine, theirs) in enumerate(pairs, 1) if mine != theirs)


def history_of(data: bytes) -> RunHistory:
    """Return the history of a journal; invalid lines are ignored."""
    found = (parse_record_or_none(line) for line in whole(data).split(b"\n") if line)
    return RunHistory.of(record for record in found if record is not None)


def only_in_ledger(history: RunHistory, known: Known) -> list[JournalRecord]:
    """Return the records of a lost journal that the ledger has and ``history`` lacks.

    So each attempt keeps its number and no job name is used twice, and the last request counts.
    The ledger does not keep records of standbys: such a job is found by its name.
    """
    lost: list[JournalRecord] = []
    for row in sorted(known.attempts, key=lambda row: row.attempt):
        lost += _lost_of(row, history.attempt(row.attempt))
    journal, latest = known.run.journal, max((each.at for each in history.records), default=None)
    said = {(each.record, each.at) for each in history.records}
    for key, kind in (
        ("cancel_requested_at", CancelRequested),
        ("resumed_at", Resumed),
        ("held_at", Held),
    ):
        if key not in journal:
            continue
        request = kind(at=from_text(journal[key]), by=known.run.user_name)
        # Another record may be from a clock that was ahead; it must not drop a stop.
        is_unknown_stop = kind in _STOPS and (request.record, request.at) not in said
        if is_unknown_stop or latest is None or request.at > latest:
            lost.append(request)
    decided = RunHistory.of(filter(None, [parsed(journal.get("decided", {}))])).decided
    if decided is not None:
        is_unknown_stop = decided.action == "stop" and decided not in history.records
        if is_unknown_stop or latest is None or decided.at > latest:
            lost.append(decided)
    return sorted(lost, key=lambda record: record.at)


def parsed(said: dict[str, Any]) -> JournalRecord | None:
    import json

    return parse_record_or_none(json.dumps(said))


def taken_over(
    history: RunHistory,
    *,
    cluster: str | None,
    now: datetime,
    exit_code: Callable[[int], int | None],
    ended_at: Callable[[int], datetime | None],
    why: str,
) -> list[JournalRecord]:
    """Return end records for all open attempts of a run from another cluster.

    Each cluster has its own job ids, so jobs of the other one must not be looked up here.

    Args:
        cluster: the name of this cluster; jobs on it stay open.
        exit_code: attempt -> exit code that its program reported; None if it did not.
        ended_at: attempt -> time of its last event; None without one.
        why: where the run comes from, for people.
    """
    ends: list[JournalRecord] = []
    for intent, was_sent in history.attempts_on_other_clusters(cluster):
        number = intent.attempt
        if not was_sent:
            ends.append(Withdrawn(at=now, attempt=number, reason=why))
            continue
        code = exit_code(number)
        ends.append(
            Ended(
                at=now,
                attempt=number,
                cause=cause_of_end("", code),
                raw_state="",
                exit_code=code,
                ended_at=ended_at(number),
                rule=why,
            )
        )
    standby = history.last.standby
    if standby is None or standby.is_void or standby.intent is None:
        return ends
    if not is_same_cluster(standby.intent.cluster, cluster):
        withdrawn = Withdrawn(at=now, attempt=standby.number, reason=why)
        ends.append(Standby(at=now, says=withdrawn))
    return ends


def _lost_of(row: AttemptRow, history: AttemptHistory) -> list[JournalRecord]:
    """Return the records of an attempt that the ledger has and ``history`` lacks."""
    said, intents = history.records, history.intents
    kept = {name: value for name, value in row.journal.items() if name in _KINDS}
    intended = kept.get("intended")
    is_same = bool(intents and intended and from_text(intended["at"]) == intents[-1].at)
    if intents and not is_same and intended and from_text(intended["at"]) < intents[-1].at:
        return []
    latest = {each.record: each.at for each in said} if is_same else {}
    lost = []
    for kind in _KINDS:
        if kind not in kept:
            continue
        # An older hpcflow inferred an end without a time when the run directory was gone.
        said_of = {"record": kind, **kept[kind]}
        if kept[kind].get("rule") == OLDER_PURGED_RULE:
            said_of["rule"] = "by the ledger"
        record = parsed(said_of) if "at" in kept[kind] else None
        if record is None:
            continue
        # For end and cost of an attempt the ledger decides, because others may write to a store.
        is_other_end = kind in ("ended", "accounted") and record != next(
            (each for each in reversed(said) if each.record == kind), None
        )
        if kind not in latest or record.at > latest[kind] or is_other_end:
            lost.append(record)
    return lost


def whole(data: bytes) -> bytes:
    """Return the complete lines of a journal."""
    return data[: data.rfind(b"\n") + 1]
