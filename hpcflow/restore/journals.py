"""Merge the journals of a restored run. Pure.

There may be three who know of a run: what is left on scratch, the mirror, which is some minutes
behind, and the ledger, which has read what the mirror may lack. A journal is never shortened, and
what two of them say differently is for a person to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.history import AttemptHistory, RunHistory
from hpcflow.history.run import is_same_cluster
from hpcflow.ledger.queries import PURGED_RULE
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

#: What the ledger keeps of an attempt's records, in the order in which they come.
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


class DivergedError(Exception):
    """Two journals of one run say different things from ``line`` on, counted from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def joined(here: bytes, there: bytes) -> bytes:
    """What the journal of a run is, of which parts lie on scratch and in the mirror.

    The longer one, where it begins as the other does. Where a purge took the one here, and lines
    were added since, these follow what the mirror has.

    Raises:
        DivergedError: neither; each says something that the other does not.
    """
    here, there = whole(here), whole(there)
    if here.startswith(there):
        return here
    if there.startswith(here):
        return there
    line = 1 + sum(1 for _ in _same(here, there))
    latest = _latest(history_of(there).records)
    mine = [each.at for each in history_of(here).records]
    if line == 1 and not mine:
        return there  # what lies here is no journal: the disk's blocks, after a crash
    if line == 1 and latest is not None and latest < min(mine):
        return there + here
    raise DivergedError(line)


def history_of(data: bytes) -> RunHistory:
    """What a journal says, without the lines that say nothing."""
    found = (parse_record_or_none(line) for line in whole(data).split(b"\n") if line)
    return RunHistory.of(record for record in found if record is not None)


def only_in_ledger(history: RunHistory, known: Known) -> list[JournalRecord]:
    """What the ledger has read of the journal that was lost, and ``history`` does not say.

    Each attempt keeps its number, and so no job name is used twice; the request that came last
    counts. What a lost journal said of standbys is not kept: such a job is found by its name.
    """
    lost: list[JournalRecord] = []
    for row in sorted(known.attempts, key=lambda row: row.attempt):
        lost += _lost_of(row, history.attempt(row.attempt))
    journal, latest = known.run.journal, _latest(history.records)
    said = {(each.record, each.at) for each in history.records}
    for key, kind in (
        ("cancel_requested_at", CancelRequested),
        ("resumed_at", Resumed),
        ("held_at", Held),
    ):
        if key not in journal:
            continue
        request = kind(at=from_text(journal[key]), by=known.run.user_name)
        # Any other line may be of a clock that was ahead: no stop is dropped because of it.
        is_unknown_stop = kind in _STOPS and (request.record, request.at) not in said
        if is_unknown_stop or latest is None or request.at > latest:
            lost.append(request)
    decided = RunHistory.of(filter(None, [parsed(journal.get("decided", {}))])).decided
    if decided is not None:
        is_unknown_stop = decided.action == "stop" and decided not in history.records
        if is_unknown_stop or latest is None or decided.at > latest:
            lost.append(decided)
    return sorted(lost, key=lambda record: record.at)


def was_resumed(history: RunHistory, known: Known) -> bool:
    """Return whether ``history`` stops the run, and the ledger has read since that it continues."""
    said = known.run.journal
    is_stopped_by_rule = said.get("decided", {}).get("action") == "stop"
    is_free = not {"held_at", "cancel_requested_at"} & said.keys() and not is_stopped_by_rule
    return is_free and history.is_stopped


def parsed(said: dict[str, Any]) -> JournalRecord | None:
    """A record from what the ledger keeps of it."""
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
    """Ends for all that is open in the journal of a run which comes from another cluster.

    Each cluster counts its own job ids: no job of the other one must be looked up here.

    Args:
        cluster: the name of this one; what was sent to it goes on to be looked up.
        exit_code: attempt -> what its program reported in the end; None where it did not.
        ended_at: attempt -> when it last said anything; None where it did not.
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
    """What the ledger knows more of an attempt than ``history``."""
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
        # hpcflow inferred an end without a time when the run directory was gone.
        said_of = {"record": kind, **kept[kind]}
        if kept[kind].get("rule") == PURGED_RULE:
            said_of["rule"] = "by the ledger"
        record = parsed(said_of) if "at" in kept[kind] else None
        if record is None:
            continue
        # The ledger decides how an attempt ended and what it cost: others may write in a store.
        is_other_end = kind in ("ended", "accounted") and record != next(
            (each for each in reversed(said) if each.record == kind), None
        )
        if kind not in latest or record.at > latest[kind] or is_other_end:
            lost.append(record)
    return lost


def _latest(records: Sequence[JournalRecord]) -> datetime | None:
    return max((record.at for record in records), default=None)


def whole(data: bytes) -> bytes:
    """The whole lines of a journal."""
    return data[: data.rfind(b"\n") + 1]


def _same(one: bytes, other: bytes) -> Iterable[bytes]:
    for mine, theirs in zip(one.split(b"\n"), other.split(b"\n"), strict=False):
        if mine != theirs:
            return
        yield mine
