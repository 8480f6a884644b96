"""Warn about runs of this home that name another user as their owner.

Such runs were created while the name of this user could not be looked up. hpcflow neither queries
nor resubmits them, because in a shared ledger the name selects each user's own runs.
"""

from __future__ import annotations

from typing import Final

from hpcflow.requeue.round_context import RoundContext
from hpcflow.storage.runs import run_ids

#: How many are told one by one.
_TOLD: Final = 3


def warn_of_owner_mismatch(around: RoundContext) -> list[str]:
    """Which runs are ours by their link, and not by their name."""
    home, user = around.settings.home, around.settings.user
    of_others = around.ledger.of_others(user=user)
    if not of_others:  # as in every ledger that is not common
        return []
    mine = [run_id for run_id in run_ids(home) if run_id in of_others]
    said = [
        f"{run_id}: it is in your {home.runs}, but says that it is of user {of_others[run_id]!r} "
        f"and not of {user!r}, so nothing is done about it; to have it back, write {user!r} for "
        f"`user` into {home.runs / run_id}/run.json, then: hpcflow ledger rebuild"
        for run_id in mine[:_TOLD]
    ]
    if len(mine) > _TOLD:
        said.append(f"{len(mine) - _TOLD} more runs of yours say that they are of another user")
    return said
