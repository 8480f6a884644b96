"""A crowded cluster: two accounts of unequal shares, limits that are full, and reservations ahead.

For the recordings (tests/recorded/outlook.py) and for tests/e2e/test_why.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hpcflow.testing.cluster import Cluster, User, poll

#: A QOS that only our user may have, with a limit of every kind.
QOS = "hpcf-tight"
QOS_LIMITS = (
    "Priority=10", "Flags=DenyOnLimit,NoReserve", "MaxWall=08:00:00", "MaxTRESPerJob=cpu=16",
    "MaxTRESPerUser=gres/gpu=4", "MaxTRESPerAccount=mem=64G", "MaxJobsPerUser=2",
    "MaxSubmitJobsPerUser=50", "GrpTRES=node=3", "UsageFactor=2", "Preempt=normal",
)  # fmt: skip
ACCOUNT_LIMITS = ("GrpTRES=gres/gpu=16", "MaxWall=1-00:00:00", "GrpJobs=30")
USER_LIMITS = ("MaxJobs=20", "MaxSubmitJobs=100", "MaxTRESPerJob=node=4")


@contextmanager
def limits(cluster: Cluster, user: User) -> Iterator[None]:
    """The user is also in ``biology``, with 5 of its 6 shares, and may use QOS; ``physics`` and the
    user in it have limits. All of it is taken back."""

    def change(*words: str) -> None:
        cluster.run("sacctmgr", "-i", *words, check=False)

    name = user.name
    change("add", "qos", QOS)
    change("modify", "qos", QOS, "set", *QOS_LIMITS)
    change("add", "user", name, "account=biology", "fairshare=5")
    # However much was charged to it before, biology comes before physics.
    change("modify", "account", "biology", "set", "RawUsage=0")
    change("modify", "user", name, "set", f"qos+={QOS}")
    change("modify", "account", "physics", "set", *ACCOUNT_LIMITS)
    change("modify", "user", name, "where", "account=physics", "set", *USER_LIMITS)
    try:
        yield
    finally:
        cluster.run("scancel", "--user", name, check=False)
        poll(lambda: not queued(cluster, user), 120, "no job of the user is left")
        change("modify", "account", "physics", "set", *map(_unlimited, ACCOUNT_LIMITS))
        change("modify", "user", name, "where", "account=physics", "set",
               *map(_unlimited, USER_LIMITS))  # fmt: skip
        change("modify", "user", name, "set", f"qos-={QOS}")
        change("delete", "user", "where", f"name={name}", "account=biology")
        change("delete", "qos", QOS)


@contextmanager
def reservations(cluster: Cluster) -> Iterator[None]:
    """Maintenance of all nodes in five hours, for two; and n1 for physics in twelve hours."""
    create = ("scontrol", "create", "reservation")
    cluster.run(*create, "reservationname=hpcf-maint", "starttime=now+5hours", "duration=2:00:00",
                "nodes=ALL", "flags=maint,ignore_jobs", "users=root")  # fmt: skip
    cluster.run(*create, "reservationname=hpcf-lab", "starttime=now+12hours", "duration=60",
                "nodes=n1", "accounts=physics")  # fmt: skip
    try:
        yield
    finally:
        for name in ("hpcf-maint", "hpcf-lab"):
            cluster.run("scontrol", "delete", f"reservationname={name}", check=False)


@contextmanager
def partition_qos(cluster: Cluster, partition: str) -> Iterator[None]:
    """QOS is the partition's own, so that its limits bind all jobs there."""
    update = ("scontrol", "update", f"partitionname={partition}")
    cluster.run(*update, f"qos={QOS}")
    try:
        yield
    finally:
        cluster.run(*update, "qos=")


def fill(user: User, *options: str) -> list[str]:
    """Jobs of half an hour that have all nodes for themselves."""
    whole = ("--exclusive", "--nodes=1", "--mem=0", "--time=30")
    return [send(user, *whole, *options) for _ in range(4)]


def send(user: User, *options: str) -> str:
    """A job that sleeps; its id."""
    argv = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", "sleep 3000"]
    return user.run(argv).stdout.strip()


def queued(cluster: Cluster, user: User) -> list[str]:
    """The jobs of the user that have not ended."""
    return cluster.run("squeue", "--noheader", "--user", user.name, "--format=%i").split()


def reason(cluster: Cluster, job_id: str) -> str:
    """Why a job waits."""
    return cluster.run("squeue", "--noheader", "--job", job_id, "--format=%r").strip()


def _unlimited(limit: str) -> str:
    """``GrpTRES=gres/gpu=12`` -> ``GrpTRES=gres/gpu=-1``."""
    return f"{limit.rpartition('=')[0]}=-1"
