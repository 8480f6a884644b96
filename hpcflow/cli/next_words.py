"""The next action of a run, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpcflow.model import next_action

if TYPE_CHECKING:
    from hpcflow.model.views import RunView

_WORDS: Final = {
    next_action.HELD: "held",
    next_action.CANCEL_JOBS: "cancelled: its job has not ended yet",
    next_action.SUBMIT_STANDBY: "standby: wanted",
    next_action.SETTLE_STANDBY: "standby: due",
}


def next_words(run: RunView) -> str:
    """Return words such as ``wait: backoff``; empty if nothing is known to come next."""
    action = run.next_action
    if action is None:
        return ""
    if action in _WORDS:
        return _WORDS[action]
    if action == next_action.AWAIT_STANDBY:
        return f"standby: {run.next_why} waits"
    # For a budget, its name helps more than the rule.
    rule = run.next_why if run.next_rule == next_action.OVER_BUDGET else run.next_rule
    return f"{action}: {rule}" if rule else action
