"""The next action of a run: the values of the column ``next_action``. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

#: The daemon's decisions, as in the journal's record ``decided``.
WAIT: Final = "wait"
RESTORE: Final = "restore"
RESUBMIT: Final = "resubmit"
STOP: Final = "stop"
#: A user has to release it first.
HELD: Final = "held"
#: It was cancelled, and a job of it is alive, or may be.
CANCEL_JOBS: Final = "cancel_jobs"
#: A standby is to be submitted; is pending; is to become the next attempt, or to be cancelled.
SUBMIT_STANDBY: Final = "submit_standby"
AWAIT_STANDBY: Final = "await_standby"
SETTLE_STANDBY: Final = "settle_standby"

#: The rule of a wait, or of a notice, because a hard budget has no room.
OVER_BUDGET: Final = "over_budget"
#: The rule of a notice or a cancel, because an attempt makes no progress.
STALLED: Final = "stalled"


class NextAction(NamedTuple):
    """What comes next of a run.

    Attributes:
        action: one of the words above; or ``notice`` or ``cancel``, while its attempt saves and
            exits, or is cancelled.
        rule: which rule said so.
        why: the facts, for people.
        not_before: the time of it.
    """

    action: str | None = None
    rule: str | None = None
    why: str | None = None
    not_before: datetime | None = None
