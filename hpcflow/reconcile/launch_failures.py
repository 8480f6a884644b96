"""Recognize jobs that Slurm cancelled because a node could not start their script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from hpcflow.launch.restarts import claims_after
from hpcflow.launch.submission import read_claim
from hpcflow.model.journal import Observed
from hpcflow.model.state import AttemptState, normalize_raw_state
from hpcflow.model.views import AttemptView
from hpcflow.reconcile.attempt_events import last_sign
from hpcflow.reconcile.restarts import is_news
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone

#: Slurm rounds times down; the journal has the moment after sbatch.
_ROUNDING: Final = timedelta(seconds=1)
#: The state in sacct of a job that root cancelled. slurmd runs as root.
_CANCELLED_BY_ROOT: Final = "CANCELLED by 0"
#: The longest time from the restart of a job until its overloaded node cancels it.
_SLURMD_TAKES: Final = timedelta(minutes=1)
#: slurmdbd records who cancelled a job within this time of answering.
_ACCOUNTING_DELAY: Final = timedelta(minutes=3)
#: How long to wait for accounting that does not answer: a site may have none that works.
_LONGEST_OUTAGE: Final = timedelta(hours=12)


def may_never_have_started(run_dir: RunDir, attempt: AttemptView, job: JobInfo) -> bool:
    """Return whether ``job`` had nodes when it was cancelled, and its script wrote nothing.

    Only accounting says who cancelled it.
    """
    return (
        normalize_raw_state(job.raw_state) == "CANCELLED"
        and bool(job.nodes)
        and not (job.exit_code or job.signal)
        and not (job.restarts and is_news(run_dir, job))
        and _wrote_nothing(run_dir, attempt)
    )


def launch_failed(
    run_dir: RunDir, attempt: AttemptView, job: JobInfo | None, past: Sequence[JobInfo]
) -> bool | None:
    """Return whether Slurm cancelled ``job`` because its node could not start the script.

    None if accounting has not said yet who cancelled the job.

    If the prolog fails, or slurmd cannot store the script, slurmd asks slurmctld to requeue the
    job. slurmctld refuses, because hpcflow submits with ``--no-requeue``. slurmd then cancels the
    job as root.

    A node that is overloaded rejects a job if it takes longer than ``MessageTimeout`` to start it.
    Slurm counts a restart, then cancels the job (``_launch_job_fail()`` in req.c of Slurm 22.05).
    While the node is completing, the job keeps its submission time. Afterwards it has that of the
    restart, which is also when it ended. If slurmd is slow, it cancels the job some seconds later.

    Args:
        attempt: the last one of its run.
        past: the records of the job in accounting.
    """
    if job is None or normalize_raw_state(job.raw_state) != "CANCELLED":
        return False
    if may_never_have_started(run_dir, attempt, job):
        ends = _ends(past, job)
        if not ends and job.source == "queue":
            return None
        is_failure = _was_cancelled_by_root(ends)
    elif job.restarts and job.submitted_at and job.ended_at and attempt.submitted_at:
        sent_at = attempt.submitted_at.replace(microsecond=0)
        if not (is_news(run_dir, job) and _wrote_nothing(run_dir, attempt)):
            return False
        is_failure = job.ended_at <= job.submitted_at or job.submitted_at < sent_at + _ROUNDING
        if not is_failure and not job.nodes and job.ended_at - job.submitted_at <= _SLURMD_TAKES:
            ends = _ends(past, job)
            if not ends and job.source == "queue":
                return None
            is_failure = _was_cancelled_by_root(ends)
    else:
        return False
    return is_failure and not claims_after(run_dir, attempt.attempt, job.job_id)


def may_still_be_told(cancelled: Observed | None, now: datetime, *, is_answered: bool) -> bool:
    """Return whether accounting may still say who cancelled a job.

    Args:
        cancelled: the first record that says that it was cancelled; None if there is none yet.
        is_answered: whether accounting answers.
    """
    if cancelled is None:
        return True
    longest = _ACCOUNTING_DELAY if is_answered else _LONGEST_OUTAGE
    return timedelta(0) <= now - cancelled.at < longest


def _ends(past: Sequence[JobInfo], job: JobInfo) -> list[JobInfo]:
    """Return the records of the end of ``job`` since its last restart."""
    return [
        each
        for each in past
        if each.state is AttemptState.ENDED and each.submitted_at == job.submitted_at
    ]


def _was_cancelled_by_root(ends: Sequence[JobInfo]) -> bool:
    # If hpcflow runs as root, the user's own scancel reads the same.
    return not _is_root() and any(each.raw_state == _CANCELLED_BY_ROOT for each in ends)


def _wrote_nothing(run_dir: RunDir, attempt: AttemptView) -> bool:
    """Return whether the script wrote nothing: it claims its attempt before any output.

    If the run directory is gone, that is not known.
    """
    number = attempt.attempt
    has_sign = read_claim(run_dir, number) is not None or last_sign(run_dir, number) is not None
    return not has_sign and not is_gone(run_dir)


def _is_root() -> bool:
    return os.geteuid() == 0
