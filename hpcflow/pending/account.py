"""Rank the accounts of a user by the priority that their fair share gives a job. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.standing import Standing

_MULTIFACTOR: Final = "priority/multifactor"
_WEIGHT: Final = "priorityweightfairshare"


@dataclass(frozen=True)
class Account:
    """One of the user's accounts, with its fair share.

    Attributes:
        points: what its factor adds to the priority of a job; None if unknown.
        is_own: whether it is the job's account.
    """

    name: str
    factor: float
    points: int | None
    is_own: bool


def accounts_of(
    job: WaitingJob, standing: Standing | None, cluster: ClusterInfo | None
) -> tuple[Account, ...]:
    """Return the accounts by their fair share, the best first; none if it is unknown."""
    if standing is None:
        return ()
    weight = _weight(cluster)
    partition = job.partitions[0] if job.partitions else None
    every = (standing.share(name, partition) for name in _names(standing))
    shares = [share for share in every if share is not None]
    found = [
        Account(
            share.account,
            share.factor,
            None if weight is None else round(weight * share.factor),
            share.account == job.account,
        )
        for share in shares
        if share.factor is not None
    ]
    return tuple(sorted(found, key=lambda each: -each.factor))


def _names(standing: Standing) -> list[str]:
    """Return the user's accounts, those of associations first."""
    members = [each.account for each in standing.associations]
    shares = [each.account for each in standing.shares if each.user]
    return list(dict.fromkeys([*members, *shares]))


def _weight(cluster: ClusterInfo | None) -> int | None:
    """Return the weight of fair share: 0 without ``priority/multifactor``, None if unknown.

    ``scontrol show config`` spells it ``PriorityWeightFairShare``, slurm.conf with a small s.
    """
    settings = cluster.settings if cluster is not None else {}
    if settings.get("PriorityType", _MULTIFACTOR) != _MULTIFACTOR:
        return 0
    text = next((value for key, value in settings.items() if key.lower() == _WEIGHT), "")
    return int(text) if text.isdecimal() else None
