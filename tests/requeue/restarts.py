"""Jobs that Slurm or an admin restarts, for the tests of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest import MonkeyPatch

from hpcflow.clock import to_text
from hpcflow.launch.run import Launched
from hpcflow.model.state import Cause
from hpcflow.model.views import RunDetail
from hpcflow.schedulers.base import JobInfo
from tests.requeue.watched import Watched


def claim(
    desk: Watched, launched: Launched, number: int, job_id: str, *events: Any, **more: Any
) -> None:
    """What the script does when it starts: its claim, and the events of its life.

    Args:
        more: what else stands in the first event.
    """
    attempt = desk.dir_of(launched).attempt(number)
    attempt.path.mkdir(mode=0o700, exist_ok=True)
    attempt.claim.write_text(f"{job_id}\n")
    started = {
        "event": "started",
        "job_id": job_id,
        "nodes": ["n1"],
        "restarts": number - 1,
        **more,
    }
    with attempt.events.open("a") as file:
        for event in (started, *events):
            file.write(json.dumps({"at": to_text(desk.clock.now()), **event}) + "\n")


def sluid_of(number: int | None) -> str:
    """The SLUID that Slurm writes for a number: an s, and the base32 of Crockford."""
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return "s" + "".join(digits[(number or 0) >> 5 * place & 31] for place in range(12, -1, -1))


def causes(seen: RunDetail) -> list[Cause | None]:
    return [attempt.cause for attempt in seen.attempts]


def jobs(seen: RunDetail) -> list[str | None]:
    return [attempt.job_id for attempt in seen.attempts]


def requeued_too_late(desk: Watched) -> tuple[Launched, str]:
    """A run whose job is requeued by hand when the next attempt's job is there, and that job."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    following = desk.tick().sent[launched.run_id]
    desk.slurm.requeue(launched.job_id)
    return launched, following


def tell_restarts(desk: Watched, patch: MonkeyPatch, count: int | None) -> None:
    """From now on the queue tells this of every job, whatever has happened to it."""
    told = desk.slurm.queue

    def queue(job_ids: Sequence[str] = ()) -> list[JobInfo]:
        return [replace(job, restarts=count) for job in told(job_ids)]

    patch.setattr(desk.slurm, "queue", queue)


def lose_from_queue(desk: Watched, patch: MonkeyPatch, times: int) -> None:
    """The queue answers, and knows nothing: a controller that restarts."""
    told, left = desk.slurm.queue, [times]

    def queue(job_ids: Sequence[str] = ()) -> list[JobInfo]:
        left[0] -= 1
        return [] if left[0] >= 0 else told(job_ids)

    patch.setattr(desk.slurm, "queue", queue)


def restarted(desk: Watched, raw_state: str = "REQUEUED") -> Launched:
    """A run whose job has been restarted once, and runs."""
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.clock.advance(600)
    desk.slurm.requeue(launched.job_id, raw_state)
    desk.tick()
    claim(desk, launched, 2, launched.job_id)
    desk.clock.advance(60)
    desk.tick()
    return launched
