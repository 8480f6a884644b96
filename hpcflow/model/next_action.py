"""The next action of a run: the values of the column ``next_action``. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

#: The daemon's decisions, as in the journal's record ``decided``.
WAIT: Final = "wait"
RESTORE: Final = "restore"
RESUBMIT: Final = "resubmit"
STOP: Final = "stop"
#: A user must release the run first.
HELD: Final = "held"
#: The run was cancelled, and one of its jobs is or may be alive.
CANCEL_JOBS: Final = "cancel_jobs"
#: Submit a standby; wait for it; make it the next attempt, or cancel it.
SUBMIT_STANDBY: Final = "submit_standby"
AWAIT_STANDBY: Final = "await_standby"
SETTLE_STANDBY: Final = "settle_standby"

#: The rule of a wait or a notice because of a hard budget.
OVER_BUDGET: Final = "over_budget"
#: The rule of a notice or a cancel because an attempt makes no progress.
STALLED: Final = "stalled"


class NextAction(NamedTuple):
    """The next action of a run.

    Attributes:
        action: one of the words above; ``notice`` while its attempt saves and exits, ``cancel``
            while it is cancelled.
        rule: the rule that decided.
        why: the facts, for people.
        not_before: the earliest time of the action.
    """

    action: str | None = None
    rule: str | None = None
    why: str | None = None
    not_before: datetime | None = None
