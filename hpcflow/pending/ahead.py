"""Find reservations on a partition's nodes that a job would run into. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.standing import Reservation

#: Margin before a reservation, because a job starts some time after its submission.
MARGIN = timedelta(minutes=5)
#: Advised time limits are rounded down to multiples of this.
_STEP_MIN = 5


@dataclass(frozen=True)
class Obstacle:
    """A reservation in the way of a job.

    Attributes:
        nodes: number of reserved nodes among those the job can use; None if unknown.
        of_nodes: number of nodes that the job can use.
        fits_min: the longest time limit with which the job would end before, if it started now;
            None once the reservation has begun, or if it begins too soon.
    """

    reservation: Reservation
    nodes: int | None
    of_nodes: int | None
    fits_min: int | None

    @property
    def takes_all(self) -> bool:
        """Return whether the job can use no other nodes."""
        return self.nodes is not None and self.nodes == self.of_nodes


def obstacles(
    job: WaitingJob,
    reservations: Iterable[Reservation],
    partition: PartitionInfo | None,
    now: datetime,
) -> tuple[Obstacle, ...]:
    """Return the reservations that have begun, or begin before the job would end if it started now.

    These exclude the reservation that the job requests, and ``MAGNETIC`` ones that accept it.
    """
    limit_min = job.time_limit_min
    ends_at = None if limit_min is None else now + timedelta(minutes=limit_min)
    found = []
    for each in reservations:
        if each.name == job.reservation or each.end <= now or not each.nodes:
            continue
        if "MAGNETIC" in each.flags and job.user and each.admits(job.user, job.account):
            continue
        if ends_at is not None and each.start >= ends_at:
            continue
        if each.partition is not None and each.partition not in job.partitions:
            continue
        names = set(partition.node_names) if partition else set()
        wanted = names & set(job.required_nodes) or names
        taken = len(wanted & set(each.nodes)) if wanted else None
        if taken == 0:
            continue
        found.append(Obstacle(each, taken, len(wanted) or None, fits_min(each.start, now)))
    return tuple(found)


def fits_min(start: datetime, now: datetime) -> int | None:
    """Return the longest time limit with which a job that starts now ends before ``start``; None
    if that is too soon."""
    left_min = int((start - now - MARGIN).total_seconds() // 60)
    return left_min // _STEP_MIN * _STEP_MIN if left_min >= _STEP_MIN else None
