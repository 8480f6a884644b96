"""The fake's associations, reservations, pending jobs and expected starts, as a test sets them::

fake.standings["ada"] = Standing("ada", (Association("physics"),))
fake.reserved.append(Reservation("maint", start, end, flags=("MAINT",)))
fake.tell_waiting(job_id, priority=5000, time_limit_min=60)
fake.starts["gpu"] = start      # of a job that is not submitted yet; None: unknown
fake.others = ClusterQueue(waiting, running)      # jobs of other users
fake.idle.append(IdleNode("n2", ("gpu",), {"cpu": 8}, True))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from hpcflow.clock import Clock
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.waiting import (
    ClusterQueue,
    IdleNode,
    PredictedStart,
    RunningJob,
    WaitingJob,
)
from hpcflow.sites.standing import Association, FairShare, QosLimits, Reservation, Standing
from hpcflow.testing.fake_cluster import FakeCluster

#: The default priority.
_PRIORITY = 1000


class FakeOutlook(FakeCluster):
    def __init__(
        self, clock: Clock, *, min_job_age_s: float = 300, starts_at_once: bool = True
    ) -> None:
        super().__init__(clock, min_job_age_s=min_job_age_s, starts_at_once=starts_at_once)
        self.standings: dict[str, Standing] = {}
        self.reserved: list[Reservation] = []
        self.starts: dict[str, datetime | None] = {}
        self.others = ClusterQueue()
        self.idle: list[IdleNode] = []
        self._told: dict[str, dict[str, Any]] = {}

    def tell_waiting(self, job_id: str, **fields: Any) -> None:
        """Set fields of this job's WaitingJob."""
        self._told[job_id] = {**self._told.get(job_id, {}), **fields}

    def _standing(self, user: str) -> Standing:
        """Return the user's standing; by default a member of ``physics`` without usage."""
        return self.standings.get(user) or Standing(
            user,
            (Association("physics", None, "normal", ("normal",), is_default=True),),
            (QosLimits("normal"),),
            (FairShare("physics"), FairShare("physics", user, factor=1.0)),
        )

    def _reservations(self) -> list[Reservation]:
        now = self._clock.now()
        left = (each for each in self.reserved if each.end > now)
        return sorted(left, key=lambda each: each.start)

    def _waiting(self, job_ids: Sequence[str]) -> list[WaitingJob]:
        queued = self._queued()
        order = _in_order(queued)
        by_id = {job.job_id: job for job in queued}
        return [_placed(by_id[each], order) for each in dict.fromkeys(job_ids) if each in by_id]

    def _queued(self) -> list[WaitingJob]:
        return [self._shown(job) for job in self._jobs.values() if job.state is AttemptState.QUEUED]

    def _cluster_queue(self) -> ClusterQueue:
        waiting = _in_order(self._queued())
        running = [
            RunningJob(job.job_id, job.partition, account=job.account)
            for job in self._jobs.values()
            if job.state is AttemptState.RUNNING
        ]
        return ClusterQueue((*waiting, *self.others.waiting), (*running, *self.others.running))

    def _predicted(self, partition: str) -> PredictedStart | None:
        starts_at = self.starts.get(partition, self._clock.now())
        return None if starts_at is None else PredictedStart(starts_at, partition, self.nodes[:1])

    def _shown(self, job: JobInfo) -> WaitingJob:
        is_limit = (job.reason or "").startswith(("Assoc", "QOS"))
        competes = is_limit or job.reason in (None, "Priority", "Resources")
        told = WaitingJob(
            job_id=job.job_id,
            partitions=(job.partition or "gpu",),
            reason=job.reason or "Priority",
            account=job.account,
            qos="normal",
            nodes=1,
            priority=_PRIORITY if competes else 0,
            eligible_at=job.submitted_at if competes else None,
            expected_start=job.begins_at,
        )
        return replace(told, **self._told.get(job.job_id, {}))


def _in_order(queued: Sequence[WaitingJob]) -> list[WaitingJob]:
    return sorted((job for job in queued if job.eligible_at), key=lambda job: -(job.priority or 0))


def _placed(job: WaitingJob, order: list[WaitingJob]) -> WaitingJob:
    if job not in order or job.position is not None:
        return job
    rivals = [each for each in order if each.partitions[:1] == job.partitions[:1]]
    place = rivals.index(job)
    return replace(
        job,
        position=place + 1,
        rivals=len(rivals),
        priority_ahead=rivals[place - 1].priority if place else None,
        priority_first=rivals[0].priority,
    )
