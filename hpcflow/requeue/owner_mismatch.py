"""Warn about runs of this home that name another user as their owner.

Such runs were created while the name of this user could not be looked up. hpcflow neither queries
nor resubmits them, because in a shared ledger the name selects each user's own runs.
"""

from __future__ import annotations

from typing import Final

from hpcflow.requeue.round_context import RoundContext
from hpcflow.storage.runs import run_ids

#: How many get a warning each.
_MOST_NAMED: Final = 3


def warn_of_owner_mismatch(context: RoundContext) -> list[str]:
    """Return warnings about runs that this home links and that name another user."""
    home, user = context.settings.home, context.settings.user
    of_others = context.ledger.of_others(user=user)
    if not of_others:  # as in every ledger of one user
        return []
    mine = [run_id for run_id in run_ids(home) if run_id in of_others]
    warnings = [
        f"{run_id}: the run is in your {home.runs}, but its run.json names user "
        f"{of_others[run_id]!r} and not {user!r}, so hpcflow does not supervise it; to change "
        f"this, set user to {user!r} in {home.runs / run_id}/run.json, then: "
        "hpcflow ledger rebuild"
        for run_id in mine[:_MOST_NAMED]
    ]
    if len(mine) > _MOST_NAMED:
        warnings.append(f"{len(mine) - _MOST_NAMED} more runs of yours name another user")
    return warnings
