"""The journal records about one attempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hpcflow.model.journal import (
    Accounted,
    Ended,
    Intended,
    JournalRecord,
    Observed,
    Stall,
    Submitted,
)
from hpcflow.model.state import MISSING, AttemptState


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
