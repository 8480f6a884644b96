"""Runs with a standby, on a cluster in memory: what their jobs do is up to the test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from hpcflow.clock import to_text
from hpcflow.errors import SchedulerError
from hpcflow.launch.run import Launched
from hpcflow.model.state import Cause
from hpcflow.model.views import RunDetail
from hpcflow.schedulers.base import JobInfo
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.watched import Watched


def begins(desk: Watched, launched: Launched, number: int, job_id: str, *events: Any) -> None:
    """What the script does when it starts: its claim, unless it has another's, and its events."""
    with desk.dir_of(launched).attempt(number).claim.open("x") as file:
        file.write(f"{job_id}\n")
    started = {"event": "started", "job_id": job_id, "nodes": ["n1"], "restarts": 0}
    says(desk, launched, number, started, *events)


def says(desk: Watched, launched: Launched, number: int, *events: dict[str, Any]) -> None:
    """Events of an attempt."""
    with desk.dir_of(launched).attempt(number).events.open("a") as file:
        for event in events:
            file.write(json.dumps({"at": to_text(desk.clock.now()), **event}) + "\n")


def with_standby(desk: Watched) -> tuple[Launched, str]:
    """A run whose first attempt runs, and the job that waits for its end."""
    launched = desk.launch()
    begins(desk, launched, 1, launched.job_id)
    return launched, desk.tick().standbys[launched.run_id]


def waiting_standby(desk: Watched) -> tuple[Launched, str]:
    """The same on a full cluster, where nothing starts by itself."""
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    begins(desk, launched, 1, launched.job_id)
    return launched, desk.tick().standbys[launched.run_id]


def told(seen: RunDetail) -> list[tuple[int, str | None, Cause | None]]:
    return [(each.attempt, each.job_id, each.cause) for each in seen.attempts]


def job(desk: Watched, job_id: str) -> JobInfo:
    """What the queue says of a job."""
    return next(each for each in desk.slurm.queue() if each.job_id == job_id)


def cannot_be_cancelled(patch: pytest.MonkeyPatch, job_id: str, error: SchedulerError) -> None:
    """scancel ends all others, and complains of this one."""
    cancel = FakeScheduler.cancel

    def complains(slurm: FakeScheduler, job_ids: Sequence[str]) -> None:
        cancel(slurm, [each for each in job_ids if each != job_id])
        if job_id in job_ids:
            raise error

    patch.setattr(FakeScheduler, "cancel", complains)
