"""Recognize jobs that Slurm cancelled because a node could not start their script."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hpcflow.launch.restarts import claims_after
from hpcflow.model.state import normalize_raw_state
from hpcflow.model.views import AttemptView
from hpcflow.observe.own_word import last_sign
from hpcflow.observe.restarts import is_news
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.layout import RunDir

#: Slurm rounds times down; the journal has the moment after sbatch.
_ROUNDING: Final = timedelta(seconds=1)


def has_launch_failed(run_dir: RunDir, attempt: AttemptView, job: JobInfo | None) -> bool:
    """Return whether Slurm cancelled ``job`` because its node could not start the script.

    An overloaded node that takes longer than ``MessageTimeout`` to start a job rejects it. Slurm
    counts a restart; as hpcflow submits with ``--no-requeue``, it then cancels the job
    (``_launch_job_fail()`` in req.c of Slurm 22.05). While the node is completing, the job keeps
    its submission time. Afterwards it has that of the restart, which is also when it ended.

    Args:
        attempt: the last one of its run.

    Raises:
        StorageError: the journal cannot be read.
    """
    if job is None or not job.restarts or normalize_raw_state(job.raw_state) != "CANCELLED":
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
