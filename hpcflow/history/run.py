"""The history of one run, from its journal. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from hpcflow.history.attempts import AttemptHistory, LastAttempt, Sending, last_attempt
from hpcflow.model.journal import (
    Accounted,
    CancelRequested,
    Changed,
    CheckpointRemoved,
    Decided,
    Ended,
    Held,
    Intended,
    JournalRecord,
    Refused,
    Released,
    Restored,
    Resumed,
    Standby,
    Submitted,
    Withdrawn,
)
from hpcflow.model.state import MISSING, Cause

#: Why a restore holds a run whose journal in the store is longer than in the home.
OLDER_HOME: Final = (
    "the store has more of its journal than this home, which may have come back from a backup"
)
_Record = TypeVar("_Record", bound=JournalRecord)


@dataclass(frozen=True)
class CheckpointHistory:
    """What a journal says about checkpoints: enough of its records for that, oldest first."""

    records: tuple[JournalRecord, ...] = ()

    @property
    def restores(self) -> list[Restored]:
        """The restores of the run from its mirror."""
        return self._all(Restored)

    @property
    def removed_checkpoints(self) -> list[CheckpointRemoved]:
        """The checkpoints that a user removed."""
        return self._all(CheckpointRemoved)

    def _all(self, kind: type[_Record]) -> list[_Record]:
        return [each for each in self.records if isinstance(each, kind)]


@dataclass(frozen=True)
class RunHistory(CheckpointHistory):
    """The journal of a run: all its records, oldest first."""

    @classmethod
    def of(cls, records: Iterable[JournalRecord]) -> RunHistory:
        """Return the history of these records, oldest first."""
        return cls(tuple(records))

    def plus(self, *records: JournalRecord) -> RunHistory:
        """Return the history after ``records`` were appended."""
        return RunHistory((*self.records, *records))

    # Attempts

    @cached_property
    def last(self) -> LastAttempt:
        return last_attempt(self.records)

    def attempt(self, number: int) -> AttemptHistory:
        """Return the records of an attempt; empty if it does not exist."""
        own = self.own_attempts
        return AttemptHistory(
            tuple(self._by_attempt.get(number, ())),
            tuple(self._own_bills_of.get(number, ())),
            own is None or number in own,
        )

    @cached_property
    def _by_attempt(self) -> dict[int, list[JournalRecord]]:
        found: dict[int, list[JournalRecord]] = defaultdict(list)
        for record in self.records:
            if (number := _number(record)) is not None:
                found[number].append(record)
        return found

    @property
    def has_job(self) -> bool:
        return bool(self.submitted_attempts)

    @cached_property
    def submitted_attempts(self) -> frozenset[int]:
        return frozenset(each.attempt for each in self._all(Submitted))

    @property
    def last_job(self) -> int:
        """The number of the last attempt that became a job; 0 before the first."""
        return max(self.submitted_attempts, default=0)

    def is_over_after(self, number: int) -> bool:
        """Return whether this attempt was the last job and ended; for 0, whether there was none."""
        return self.last_job == number and (number == 0 or self.attempt(number).is_ended)

    @property
    def attempts_without_end(self) -> frozenset[int]:
        """The attempts that became jobs, without a recorded end."""
        return self.submitted_attempts - {each.attempt for each in self._all(Ended)}

    @property
    def withdrawn_attempts(self) -> set[int]:
        """The withdrawn attempts and standbys. If a job of one still appears, it must exit."""
        found = set()
        for said in self._unwrapped:
            if isinstance(said, Withdrawn):
                found.add(said.attempt)
            elif isinstance(said, Submitted):
                found.discard(said.attempt)
        return found

    @property
    def barred_attempts(self) -> set[int]:
        """The attempts that no job may begin to execute any more: withdrawn, or vanished."""
        vanished = {each.attempt for each in self._all(Ended) if each.raw_state == MISSING}
        return self.withdrawn_attempts | vanished

    @property
    def intended_attempts(self) -> list[int]:
        """The numbers of all attempts, in order."""
        return sorted({each.attempt for each in self._all(Intended)})

    @property
    def numbers(self) -> set[int]:
        """The numbers of all recorded attempts and standbys."""
        return {number for each in self._unwrapped if (number := _number(each)) is not None}

    @property
    def startable_attempts(self) -> list[int]:
        """The attempts whose job may still start: the last one, and its standby."""
        numbers = [self.last.number, self.last.standby.number if self.last.standby else 0]
        return [number for number in numbers if number > 0]

    def attempts_on_other_clusters(self, cluster: str | None) -> list[tuple[Intended, bool]]:
        """Return the open intents for other clusters, by attempt; and whether each became a job."""
        opened: dict[int, tuple[Intended, bool]] = {}
        for record in self.records:
            if isinstance(record, Intended):
                opened[record.attempt] = record, False
            elif isinstance(record, Submitted) and record.attempt in opened:
                opened[record.attempt] = opened[record.attempt][0], True
            elif isinstance(record, (Ended, Refused, Withdrawn)):
                opened.pop(record.attempt, None)
        return [
            each
            for _, each in sorted(opened.items())
            if not is_same_cluster(each[0].cluster, cluster)
        ]

    @property
    def last_sending(self) -> dict[int, Sending]:
        """The last submission of each attempt, or of a standby of its number."""
        never = (Refused, Withdrawn)
        return {
            each.attempt: Sending(each.at, isinstance(each, Submitted), isinstance(each, never))
            for each in self._unwrapped
            if isinstance(each, (Intended, Submitted, *never))
        }

    @property
    def has_completed(self) -> bool:
        """Whether an attempt ended as completed."""
        return any(
            isinstance(each, Ended) and each.cause is Cause.COMPLETED for each in self.records
        )

    @property
    def promoted_standbys(self) -> dict[int, str]:
        """Attempt -> job id, for each standby with which the run continued."""
        return {
            each.attempt: each.job_id
            for each in self.records
            if isinstance(each, Submitted) and each.how == "standby"
        }

    def submitted_inside(self, job_id: str) -> int | None:
        """Return the last attempt that this job made from inside an allocation.

        Attempts before the last restore do not count: their script may be from a store.
        """
        for record in reversed(self.records):
            if isinstance(record, Restored):
                return None
            if isinstance(record, Submitted) and (record.how, record.job_id) == ("inside", job_id):
                return record.attempt
        return None

    # Requests and decisions

    @cached_property
    def is_cancelled(self) -> bool:
        """Whether the last request cancels the run.

        A hold with a reason ends a cancel: a restore writes one if only the store knows the cancel.
        """
        for record in reversed(self.records):
            if isinstance(record, (CancelRequested, Resumed)) or _is_hold_of_restore(record):
                return isinstance(record, CancelRequested)
        return False

    @property
    def cancel_signal(self) -> str:
        """The content of the file ``cancel``, by the last request to cancel the run."""
        request = self._last(CancelRequested)
        return f"{request.signal}\n" if request and request.signal else ""

    @property
    def hold(self) -> Held | None:
        """The hold that is in force."""
        request = self._last(Held, Released, Resumed)
        return request if isinstance(request, Held) else None

    @property
    def is_held(self) -> bool:
        return self.hold is not None

    @property
    def is_stopped(self) -> bool:
        """Whether the last requests cancel or hold the run."""
        return self.is_cancelled or self.is_held

    @property
    def is_older_home_accepted(self) -> bool:
        """Whether the user continued a run that was held for :data:`OLDER_HOME`."""
        for record in reversed(self.records):
            if isinstance(record, Held) and record.why == OLDER_HOME:
                return False
            if isinstance(record, (Released, Resumed)):
                return any(each.why == OLDER_HOME for each in self._all(Held))
        return False

    @property
    def is_changed(self) -> bool:
        """Whether the user has changed the spec of the run."""
        return self._last(Changed) is not None

    @property
    def is_ended_by_hand(self) -> bool:
        """Whether its last job was cancelled, and nothing was submitted or requested since."""
        last = self._last(Ended, Intended, Released, Resumed, Submitted)
        return isinstance(last, Ended) and last.cause is Cause.CANCELLED

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing will happen by itself: completed, cancelled, held, stopped by a rule."""
        if self.last.is_completed or self.last.cause is Cause.CANCELLED:
            return True
        if self.last.is_live or self.last.is_open:
            return False
        if self.is_stopped:
            return True
        last = self._last(Decided, Resumed, Released)
        return isinstance(last, Decided) and last.action in ("stop", "cancel")

    @property
    def decided(self) -> Decided | None:
        return self._last(Decided)

    @property
    def refused(self) -> Refused | None:
        """Slurm's last refusal of an attempt."""
        return self._last(Refused)

    def attempts_since(self, is_meant: Callable[[Changed], bool]) -> dict[int, AttemptHistory]:
        """Return the attempts intended since the last change for which ``is_meant`` is true."""
        since = max(
            (
                n
                for n, each in enumerate(self.records)
                if isinstance(each, Changed) and is_meant(each)
            ),
            default=0,
        )
        later = RunHistory(self.records[since:])
        return {number: later.attempt(number) for number in later.intended_attempts}

    # Records of this user alone: other users may write in a store

    @property
    def _own(self) -> RunHistory:
        """The records since the last restore of the journal, or all."""
        return self if self._since_restore is None else self._since_restore

    @cached_property
    def _since_restore(self) -> RunHistory | None:
        """The records since the last restore of the journal; None without one.

        A history that cached itself would live until Python's garbage collector passes.
        """
        for place in range(len(self.records) - 1, -1, -1):
            record = self.records[place]
            if isinstance(record, Restored) and record.journal:
                return RunHistory(self.records[place:])
        return None

    @cached_property
    def own_attempts(self) -> frozenset[int] | None:
        """The attempts with :attr:`AttemptHistory.is_own`; None for all."""
        if self._since_restore is None:
            return None
        sent = [each for each in self._own._unwrapped if isinstance(each, Submitted)]
        ids = {each.job_id for each in sent if each.how in ("sbatch", "inside")}
        return frozenset(each.attempt for each in sent if each.job_id in ids)

    @cached_property
    def own_bills(self) -> list[Accounted]:
        """The bills that follow from Slurm's answers to this user."""
        own = self.own_attempts
        return [
            each
            for each in self._own._all(Accounted)
            if each.source == "accounting" or own is None or each.attempt in own
        ]

    @cached_property
    def _own_bills_of(self) -> dict[int, list[Accounted]]:
        found: dict[int, list[Accounted]] = defaultdict(list)
        for bill in self.own_bills:
            found[bill.attempt].append(bill)
        return found

    @property
    def own_mem_mb(self) -> int | None:
        """The memory that the last attempt requested; None if none, or from a store."""
        intent = self.last.intent
        return intent.mem_mb if intent is not None and intent in self._own.records else None

    # Records of some kinds

    @property
    def _unwrapped(self) -> Iterable[JournalRecord]:
        """The records, with those about standbys as if about attempts."""
        return (each.says if isinstance(each, Standby) else each for each in self.records)

    def _last(self, *kinds: type[_Record]) -> _Record | None:
        return next((each for each in reversed(self.records) if isinstance(each, kinds)), None)


def is_same_cluster(one: str | None, other: str | None) -> bool:
    """Return whether two clusters are both known, and the same."""
    return one is not None and other is not None and one.lower() == other.lower()


def _number(record: JournalRecord) -> int | None:
    number: int | None = getattr(record, "attempt", None)
    return number


def _is_hold_of_restore(record: JournalRecord) -> bool:
    return isinstance(record, Held) and bool(record.why)
