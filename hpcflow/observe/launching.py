"""Recognize jobs that Slurm cancelled because a node could not start their script."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from hpcflow.launch.restarts import claims_after
from hpcflow.model.journal import Intended, JournalRecord, Submitted
from hpcflow.model.state import normalize_raw_state
from hpcflow.model.views import AttemptView
from hpcflow.observe.journal_buffer import JournalBuffer
from hpcflow.observe.own_word import last_sign
from hpcflow.schedulers.base import JobInfo

_A_SECOND: Final = timedelta(seconds=1)


def has_launch_failed(written: JournalBuffer, attempt: AttemptView, job: JobInfo | None) -> bool:
    """Return whether Slurm cancelled ``job`` because its node could not start the script.

    An overloaded node that takes longer than ``MessageTimeout`` to start a job rejects it. Slurm
    counts a restart; as hpcflow submits with ``--no-requeue``, it then cancels the job
    (``_launch_job_fail()`` in req.c of Slurm 22.05). While the node is completing, the job keeps
    its submission time. Afterwards it has that of the restart, which is also when it ended.

    Raises:
        StorageError: the journal cannot be read.
    """
    if job is None or not job.restarts or normalize_raw_state(job.raw_state) != "CANCELLED":
        return False
    if job.submitted_at is None or job.ended_at is None:
        return False
    records = written.of(attempt.attempt)
    sent_at = attempt.submitted_at or _sent_at(attempt.attempt, records)
    return (
        job.restarts > _restarts(attempt.attempt, records)
        and (job.ended_at <= job.submitted_at or _is_same(job.submitted_at, sent_at))
        and last_sign(written.run_dir, attempt.attempt) is None
        and not claims_after(written.run_dir, attempt.attempt, job.job_id)
    )


def _is_same(submitted_at: datetime, sent_at: datetime | None) -> bool:
    """Return whether both are one submission: Slurm rounds down, the journal is written later."""
    return sent_at is not None and submitted_at < sent_at.replace(microsecond=0) + _A_SECOND


def _restarts(number: int, records: Iterable[JournalRecord]) -> int:
    """Return how often Slurm had restarted the job when it became this attempt."""
    made = (each for each in records if isinstance(each, Intended) and each.attempt == number)
    return next((each.restarts or 0 for each in made), 0)


def _sent_at(number: int, records: Iterable[JournalRecord]) -> datetime | None:
    sent = (each for each in records if isinstance(each, Submitted) and each.attempt == number)
    return next((each.at for each in sent if each.how == "sbatch"), None)
