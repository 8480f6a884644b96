"""Match the answers of squeue and sacct to the attempts of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from hpcflow.errors import StorageError
from hpcflow.history import AttemptHistory
from hpcflow.model.ids import parse_job_name
from hpcflow.model.state import AttemptState
from hpcflow.model.views import AttemptView, LiveRun
from hpcflow.reconcile.launch_failures import may_never_have_started
from hpcflow.reconcile.restarts import is_news
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.layout import Home


def is_end(job: JobInfo) -> bool:
    return job.state is AttemptState.ENDED


def needs_accounting(home: Home, run: LiveRun, attempt: AttemptView, job: JobInfo | None) -> bool:
    """Return whether accounting must be queried about a job.

    It must in three cases:

    - The queue has forgotten the job.
    - The job was restarted, and the queue hides how its life before that ended.
    - The job was cancelled, perhaps before it started, and the queue hides who did it.
    """
    if job is None:
        return True
    if not job.restarts and not is_end(job):
        return False  # the usual case, kept fast for ten thousand jobs
    run_dir = home.run_dir(run.run_dir)
    try:
        if job.restarts and is_news(run_dir, job):
            return True
        return may_never_have_started(run_dir, attempt, job)
    except StorageError:
        return False


def by_job_id(jobs: Iterable[JobInfo]) -> dict[str, list[JobInfo]]:
    found: dict[str, list[JobInfo]] = defaultdict(list)
    for job in jobs:
        found[job.job_id].append(job)
    return dict(found)


def newest_answer(attempt: AttemptView, known: dict[str, list[JobInfo]]) -> JobInfo | None:
    """Return the newest answer about the job of ``attempt``.

    Ids wrap, so the name must agree; or the submission time, because a user may rename a job. For a
    renamed and restarted job neither agrees: its id counts, unless the name is another run's.

    A record of accounting that a job runs, while the queue does not know it, is no answer: if
    slurmdbd was down at the end of a job, such a record stays forever. Older records are about
    earlier starts of the job, and are no answer either. Such a job vanishes much later, see
    :func:`is_listed`.
    """
    answers = known.get(attempt.job_id or "")
    if not answers:
        return None
    if answers[-1].source != "accounting" and answers[-1].job_name == attempt.job_name:
        return answers[-1]  # the usual case, kept fast for ten thousand jobs
    job = _newest_about(attempt, answers)
    if job is None or job.source != "accounting":
        return job
    return job if is_end(job) else None


def is_listed(attempt: AttemptView, past: Sequence[JobInfo]) -> bool:
    """Return whether accounting's newest record says that the job is pending or running.

    squeue can leave out a live job: a wrapper with a cache, an answer that was cut, a controller
    restored from an older state. An unknown state may be an end.
    """
    job = _newest_about(attempt, past)
    return job is not None and job.state not in (AttemptState.ENDED, AttemptState.UNKNOWN)


def _newest_about(attempt: AttemptView, answers: Sequence[JobInfo]) -> JobInfo | None:
    return next(
        (
            job
            for job in reversed(answers)
            if _is_named_like(job, attempt)
            or (job.submitted_at is not None and job.submitted_at == attempt.submitted_at)
            or (
                (job.restarts or job.is_held_for_its_exit)
                and parse_job_name(job.job_name.strip()) is None
            )
        ),
        None,
    )


def is_older(job: JobInfo, history: AttemptHistory) -> bool:
    """Return whether a record is about an earlier start of the attempt's job: slurmdbd may not have
    the newest record yet."""
    return job.source == "accounting" and any(
        each.submitted_at is not None
        and job.submitted_at is not None
        and job.submitted_at < each.submitted_at
        for each in history.observed
    )


def _is_named_like(job: JobInfo, attempt: AttemptView) -> bool:
    """Return whether a job has the name of an attempt, or of another one of its run: a restarted
    job keeps its name."""
    name = job.job_name.strip()
    named = parse_job_name(name)
    return name == attempt.job_name.strip() or (named is not None and named[0] == attempt.run_id)
