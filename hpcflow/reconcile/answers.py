"""Match the answers of squeue and sacct to the attempts of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcflow.errors import StorageError
from hpcflow.history import AttemptHistory
from hpcflow.model.ids import parse_job_name
from hpcflow.model.state import AttemptState
from hpcflow.model.views import AttemptView, LiveRun
from hpcflow.reconcile.launch_failures import may_never_have_started
from hpcflow.reconcile.restarts import is_news
from hpcflow.runtime.reading import read_object
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.layout import RunDir


def is_end(job: JobInfo) -> bool:
    return job.state is AttemptState.ENDED


def needs_accounting(run: LiveRun, attempt: AttemptView, job: JobInfo | None) -> bool:
    """Return whether accounting must be asked about a job.

    It must in three cases:

    - The queue has forgotten the job.
    - The job was restarted, and the queue hides how its life before that ended.
    - The job was cancelled, perhaps before it started, and the queue hides who did it.
    """
    if job is None:
        return True
    if not job.restarts and not is_end(job):
        return False  # as a rule, and there may be ten thousand
    run_dir = RunDir(Path(run.run_dir))
    try:
        if job.restarts and is_news(run_dir, job):
            return True
        return may_never_have_started(run_dir, attempt, job)
    except StorageError:
        return False


def by_job_id(jobs: Iterable[JobInfo]) -> dict[str, list[JobInfo]]:
    """Job id -> what is said of jobs that bear it, oldest first."""
    found: dict[str, list[JobInfo]] = defaultdict(list)
    for job in jobs:
        found[job.job_id].append(job)
    return dict(found)


def newest_answer(attempt: AttemptView, known: dict[str, list[JobInfo]]) -> JobInfo | None:
    """The newest answer about the job of ``attempt``.

    Ids wrap, so the name must agree; or the time of submission, for people rename their jobs. To a
    renamed job that was restarted, neither does: its id counts, unless its name is another run's.

    A job that accounting calls running while the queue does not know it is no answer: such records
    are left behind when slurmdbd was down at the end of a job, and stay for ever. What is older
    than such a record is none either, for it tells of a former life of the job. It makes the
    absence count much later, see :func:`is_listed`.
    """
    said = known.get(attempt.job_id or "")
    if not said:
        return None
    if said[-1].source != "accounting" and said[-1].job_name == attempt.job_name:
        return said[-1]  # as a rule, and there may be ten thousand
    job = _newest_about(attempt, said)
    if job is None or job.source != "accounting":
        return job
    return job if is_end(job) else None


def is_listed(attempt: AttemptView, past: Sequence[JobInfo]) -> bool:
    """Whether the newest record of accounting says that the job of ``attempt`` waits or runs.

    A squeue can leave a job out that lives: a wrapper with a cache, an answer that was cut short, a
    controller that came back with an older state. A word that nobody knows may be one for an end.
    """
    job = _newest_about(attempt, past)
    return job is not None and job.state not in (AttemptState.ENDED, AttemptState.UNKNOWN)


def _newest_about(attempt: AttemptView, said: Sequence[JobInfo]) -> JobInfo | None:
    return next(
        (
            job
            for job in reversed(said)
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
    """Whether accounting tells of a life before the one that an attempt was seen to be: the record
    of that one may still be on its way to slurmdbd."""
    return job.source == "accounting" and any(
        each.submitted_at is not None
        and job.submitted_at is not None
        and job.submitted_at < each.submitted_at
        for each in history.observed
    )


def _is_named_like(job: JobInfo, attempt: AttemptView) -> bool:
    """Whether a job has the name of an attempt, or of another one of the same run: a job that is
    restarted keeps the name that it had."""
    name = job.job_name.strip()
    named = parse_job_name(name)
    return name == attempt.job_name.strip() or (named is not None and named[0] == attempt.run_id)


def site_of(run_dir: RunDir) -> str | None:
    """The site of a run by its ``run.json``; None where that cannot be read."""
    try:
        site = read_object(run_dir.run_json).get("site")
    except (OSError, ValueError):
        return None
    return site if isinstance(site, str) else None
