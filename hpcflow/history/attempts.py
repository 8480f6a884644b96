"""One attempt of a run: its journal records, and the state of the newest one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from hpcflow.model.journal import (
    Accounted,
    Changed,
    Ended,
    Intended,
    JournalRecord,
    Observed,
    Refused,
    Stall,
    Standby,
    Submitted,
    Withdrawn,
)
from hpcflow.model.state import MISSING, AttemptState, Cause


@dataclass(frozen=True)
class AttemptHistory:
    """The journal records of one attempt.

    Attributes:
        records: oldest first, without those of a standby of the same number.
        own_bills: its bills that are not from a store.
        is_own: whether the id of its job is from Slurm's answer to this user. After a restore, it
            may follow from the store: from a claim, a restart or a standby.
    """

    records: tuple[JournalRecord, ...] = ()
    own_bills: tuple[Accounted, ...] = ()
    is_own: bool = True

    @property
    def intents(self) -> list[Intended]:
        """Its intents; more than one if Slurm refused it."""
        return [each for each in self.records if isinstance(each, Intended)]

    @property
    def submissions(self) -> list[Submitted]:
        """The records of its jobs; usually one."""
        return [each for each in self.records if isinstance(each, Submitted)]

    @property
    def observed(self) -> list[Observed]:
        """The scheduler's observations of it."""
        return [each for each in self.records if isinstance(each, Observed)]

    @property
    def is_ended(self) -> bool:
        return any(isinstance(each, Ended) for each in self.records)

    @property
    def is_billed_for_good(self) -> bool:
        """Whether its bill is from accounting."""
        return any(each.source == "accounting" for each in self.own_bills)

    @property
    def stall(self) -> Stall | None:
        """The last record about its lack of progress."""
        found = [each for each in self.records if isinstance(each, Stall)]
        return found[-1] if found else None

    @property
    def seen_ended(self) -> Observed | None:
        """The first of its last observations in a row that showed its job as ended."""
        found = None
        for each in self.observed:
            if each.raw_state != MISSING:
                found = (found or each) if each.state is AttemptState.ENDED else None
        return found

    @property
    def missed(self) -> list[Observed]:
        """The last observations in a row that did not find its job."""
        missed: list[Observed] = []
        for each in self.observed:
            missed = [*missed, each] if each.raw_state == MISSING else []
        return missed


@dataclass(frozen=True)
class Sending:
    """What the last record about the submission of an attempt says.

    Attributes:
        is_job: its job exists.
        is_void: Slurm refused it, or it was withdrawn.
    """

    at: datetime
    is_job: bool
    is_void: bool


@dataclass(frozen=True)
class LastAttempt:
    """The state of the newest attempt, from the journal.

    Attributes:
        number: 0 before the first attempt.
        intent: the record of the intent to submit it.
        job_id: None if unknown.
        is_void: it has no job, and never will. The number of a refused attempt is reused. The
            number of a withdrawn one is sealed, because its job may still appear.
        cause: why it ended; None before its end.
        restarts: how often Slurm had restarted its job when the job became this attempt.
        standby: the newest job that was submitted to start after this attempt, with its own number.
        is_extended: the training continues, although this attempt completed the run.
    """

    number: int = 0
    intent: Intended | None = None
    job_id: str | None = None
    is_void: bool = False
    is_withdrawn: bool = False
    cause: Cause | None = None
    restarts: int = 0
    standby: LastAttempt | None = None
    is_extended: bool = False

    @property
    def is_completed(self) -> bool:
        """Whether it completed the run, and the run was not extended since."""
        return self.cause is Cause.COMPLETED and not self.is_extended

    @property
    def is_open(self) -> bool:
        """Whether it was intended, and the existence of its job is unknown."""
        return self.intent is not None and self.job_id is None and not self.is_void

    @property
    def is_live(self) -> bool:
        """Whether it has a job without a recorded end."""
        return self.job_id is not None and self.cause is None and not self.is_void

    @property
    def is_unsent(self) -> bool:
        """Whether its number can be used: nothing was intended, or Slurm refused it."""
        return self.intent is None or (self.is_void and not self.is_withdrawn)

    @property
    def has_standby(self) -> bool:
        """Whether a standby is or may be pending, or has started without a record yet."""
        return self.standby is not None and not self.standby.is_void

    @property
    def next_number(self) -> int:
        number = max(1, self.number if self.is_unsent else self.number + 1)
        return max(number, self.standby.next_number) if self.standby else number


def last_attempt(records: Iterable[JournalRecord]) -> LastAttempt:
    """Return the newest attempt of a journal."""
    last = LastAttempt()
    standby: LastAttempt | None = None
    lives: dict[str, tuple[int, int]] = {}
    for record in records:
        if isinstance(record, Standby):
            job_id = standby.job_id if standby is not None else None
            standby = _follow(standby or LastAttempt(), record.says, {})
            if isinstance(record.says, Withdrawn):
                standby = replace(standby, job_id=job_id)  # the queue may still show it
            continue
        last = _follow(last, record, lives)
        if standby is not None and last.number >= standby.number:
            standby = None  # it is this attempt, or its number was reused
    return replace(last, standby=standby)


def _follow(
    last: LastAttempt, record: JournalRecord, lives: dict[str, tuple[int, int]]
) -> LastAttempt:
    """Return the newest attempt after ``record``."""
    if isinstance(record, Intended):
        return LastAttempt(record.attempt, record)
    if isinstance(record, Submitted) and record.attempt == last.number:
        restarts = _restarts(record, lives)
        return LastAttempt(last.number, last.intent, record.job_id, restarts=restarts)
    if isinstance(record, (Refused, Withdrawn)) and record.attempt == last.number:
        withdrawn = isinstance(record, Withdrawn)
        return LastAttempt(last.number, last.intent, is_void=True, is_withdrawn=withdrawn)
    if isinstance(record, Changed) and record.extends == last.number:
        return replace(last, is_extended=True)
    if isinstance(record, Ended) and record.attempt == last.number:
        return replace(last, cause=record.cause)
    return last


def _restarts(submitted: Submitted, lives: dict[str, tuple[int, int]]) -> int:
    """Return how often a job had been restarted when it became an attempt.

    Each restart is one more attempt. A new job may have the id of an old one: after a crash, Slurm
    may issue ids again.

    Args:
        lives: job id -> its last attempt, and its restarts by then; updated.
    """
    number, restarts = lives.get(submitted.job_id, (submitted.attempt, 0))
    is_new = submitted.how in ("sbatch", "inside", "standby")
    restarts = 0 if is_new else restarts + max(0, submitted.attempt - number)
    lives[submitted.job_id] = (submitted.attempt, restarts)
    return restarts
