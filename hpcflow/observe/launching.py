"""Recognize jobs that Slurm cancelled because a node could not start their script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from hpcflow.launch.restarts import claims_after
from hpcflow.model.state import AttemptState, normalize_raw_state
from hpcflow.model.views import AttemptView
from hpcflow.observe.own_word import last_sign
from hpcflow.observe.restarts import is_news
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.layout import RunDir

#: Slurm rounds times down; the journal has the moment after sbatch.
_ROUNDING: Final = timedelta(seconds=1)


#: The word of accounting for a job that slurmd, which runs as root, has cancelled.
_BY_ROOT: Final = "CANCELLED by 0"
#: So long does slurmdbd take at most to learn who cancelled a job.
_TOLD_WITHIN: Final = timedelta(minutes=3)


def may_have_failed(job: JobInfo | None) -> bool:
    """Return whether ``job`` was cancelled with nodes, but perhaps before its script started. Only
    accounting says by whom."""
    return (
        job is not None
        and normalize_raw_state(job.raw_state) == "CANCELLED"
        and bool(job.nodes)
        and not (job.restarts or job.exit_code or job.signal)
    )


def is_canceller_unknown(
    run_dir: RunDir,
    attempt: AttemptView,
    job: JobInfo | None,
    past: Sequence[JobInfo],
    now: datetime,
    *,
    is_answered: bool,
) -> bool:
    """Return whether accounting is still to say who cancelled a job whose script wrote nothing.

    Args:
        past: what accounting says about the job.
        is_answered: whether accounting answered.
    """
    return (
        job is not None
        and job.source == "queue"
        and may_have_failed(job)
        and not any(
            each.state is AttemptState.ENDED and each.submitted_at == job.submitted_at
            for each in past
        )
        and job.ended_at is not None
        and not (is_answered and now - job.ended_at >= _TOLD_WITHIN)
        and last_sign(run_dir, attempt.attempt) is None
    )


def has_launch_failed(
    run_dir: RunDir, attempt: AttemptView, job: JobInfo | None, past: Sequence[JobInfo]
) -> bool:
    """Return whether Slurm cancelled ``job`` because its node could not start the script.

    If the node's prolog fails, or it cannot store the script, slurmd asks for a requeue. As hpcflow
    submits with ``--no-requeue``, that is refused, and slurmd cancels the job as root.

    An overloaded node that takes longer than ``MessageTimeout`` to start a job rejects it. Slurm
    counts a restart, and then cancels the job (``_launch_job_fail()`` in req.c of Slurm 22.05).
    While the node is completing, the job keeps its submission time. Afterwards it has that of the
    restart, which is also when it ended.

    Args:
        attempt: the last one of its run.
        past: what accounting says about the job.

    Raises:
        StorageError: the journal cannot be read.
    """
    if job is None or normalize_raw_state(job.raw_state) != "CANCELLED":
        return False
    if may_have_failed(job):
        return (
            any(
                each.raw_state == _BY_ROOT and each.submitted_at == job.submitted_at
                for each in (*past, job)
            )
            and last_sign(run_dir, attempt.attempt) is None
            and not claims_after(run_dir, attempt.attempt, job.job_id)
        )
    if not job.restarts:
        return False
    if not (job.submitted_at and job.ended_at and attempt.submitted_at):
        return False
    sent_at = attempt.submitted_at.replace(microsecond=0)
    return (
        (job.ended_at <= job.submitted_at or job.submitted_at < sent_at + _ROUNDING)
        and is_news(run_dir, job)
        and last_sign(run_dir, attempt.attempt) is None
        and not claims_after(run_dir, attempt.attempt, job.job_id)
    )
