"""Which jobs are a run's, and whether this is the cluster that they are on."""

from __future__ import annotations

from hpcflow.errors import InputError, Where
from hpcflow.launch.submission import LastAttempt
from hpcflow.model.ids import parse_job_name
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.sites.schema import Site

#: sbatch gives up after about two minutes; whoever holds the lock longer is in trouble.
LOCK_WAIT_S = 180.0


def require_cluster(site: Site, scheduler: Scheduler) -> None:
    """Refuse to send to another cluster than the site's: homes and scratch can be common to many.

    Raises:
        InputError: the Slurm of this machine is another cluster's.
    """
    here = scheduler.cluster()
    if here and site.cluster_name and here.lower() != site.cluster_name.lower():
        raise InputError(
            f"site {site.name} is the cluster {site.cluster_name}, and Slurm on this machine is "
            f"that of {here}",
            where=Where(key="--site"),
            next_action=f"log in to {site.cluster_name}, or name this cluster's site: "
            "hpcflow site list",
        )


def alive_jobs(run_id: str, scheduler: Scheduler, by_hand: LastAttempt | None = None) -> list[str]:
    """Ids of the jobs in the queue that are of the run: by their names, for ids are used again.

    Args:
        by_hand: an attempt whose job somebody else named; its id and that name must agree.
    """

    def is_of_run(job: JobInfo) -> bool:
        if (named := parse_job_name(job.job_name)) is not None:
            return named[0] == run_id
        return (
            by_hand is not None
            and by_hand.intent is not None
            and job.job_id == by_hand.job_id
            and job.job_name.strip() == by_hand.intent.job_name.strip()
        )

    return [
        job.job_id
        for job in scheduler.queue()
        if job.state is not AttemptState.ENDED and is_of_run(job)
    ]
