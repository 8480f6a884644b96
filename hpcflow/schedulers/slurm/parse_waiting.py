"""Parse squeue and sprio for pending jobs, and ``sbatch --test-only`` for a planned one.

Pure. The columns are the same in Slurm 20.11 to 25.11; ``%n`` and ``%o`` of sprio came with 23.02.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from hpcflow.schedulers.slurm import job_ids as ids
from hpcflow.schedulers.slurm.hostlist import names_in
from hpcflow.schedulers.slurm.parse_jobs import FIELD_END, ROW_END
from hpcflow.schedulers.slurm.reasons import explain
from hpcflow.schedulers.slurm.units import parse_count, parse_minutes, parse_time, tres_counts
from hpcflow.schedulers.waiting import (
    ClusterQueue,
    PredictedStart,
    PriorityFactor,
    RunningJob,
    WaitingJob,
)

#: ``JobID`` is sprio's number of an array task. ``tres-alloc`` is the request of a pending job, and
#: the allocation of a running one. The reason, which may be a sentence, comes last.
WAITING_FIELDS: Final = (
    "JobArrayID", "JobID", "Partition", "UserName", "Account", "QOS", "PriorityLong", "TimeLimit",
    "NumNodes", "ReqNodes", "SchedNodes", "StartTime", "EligibleTime", "Reservation", "tres-alloc",
    "Dependency", "State", "EndTime", "Reason",
)  # fmt: skip
#: For ``squeue --Format``.
WAITING_FORMAT: Final = ",".join(
    [f"{name}:{FIELD_END}" for name in WAITING_FIELDS[:-1]] + [f"{WAITING_FIELDS[-1]}:{ROW_END}"]
)

#: sprio's letter of a weighted factor -> its name.
_FACTORS: Final = {
    "F": "fair share",
    "A": "age",
    "J": "job size",
    "P": "partition",
    "Q": "QOS",
    "B": "association",
    "S": "site",
    "T": "resources",
    "N": "nice",
}
#: For ``sprio --format``: the job, the partition, then the factors.
FACTORS_FORMAT: Final = "|".join(["%i", "%r", *(f"%{letter}" for letter in _FACTORS)])

#: Up to 24.11, Slurm prints neither the cluster nor the "a".
_START: Final = re.compile(
    r"Job \d+ to start at (?P<time>\S+)(?: on cluster \S+)?(?: a)? using \d+ processors"
    r" on (?:nodes )?(?P<nodes>\S+)(?: in partition (?P<partition>\S+))?"
)
#: Reasons of jobs that wait for a begin time, or for other tasks of their array.
_NOT_YET: Final = frozenset({"BeginTime", "JobArrayTaskLimit"})
_PENDING: Final = "PENDING"
_RUNNING: Final = "RUNNING"
_NO_TEXT: Final = frozenset({"", "(null)", "n/a", "none"})


def parse_waiting(squeue: str, sprio: str, job_ids: Sequence[str]) -> list[WaitingJob]:
    """Return those of ``job_ids`` that are pending in the squeue of the whole cluster.

    Args:
        sprio: its output; empty without an answer.
    """
    rows = [row for row in _rows(squeue) if row["State"] == _PENDING]
    factors = parse_factors(sprio)
    order = _in_order(rows)
    found: list[WaitingJob] = []
    for wanted in dict.fromkeys(job_ids):
        for row in rows:
            if ids.covers(row["JobArrayID"], wanted):
                job = _placed(row, order)
                parts = factors.get((row["JobID"], job.partitions[0] if job.partitions else ""))
                found.append(replace(job, job_id=wanted, factors=parts or ()))
                break
    return found


def parse_cluster_queue(squeue: str) -> ClusterQueue:
    """Return the jobs of all users in the squeue of the whole cluster."""
    rows = _rows(squeue)
    waiting = [row for row in rows if row["State"] == _PENDING]
    return ClusterQueue(
        tuple(_job(row) for row in _in_order(waiting)),
        tuple(_running(row) for row in rows if row["State"] == _RUNNING),
    )


def parse_factors(sprio: str) -> dict[tuple[str, str], tuple[PriorityFactor, ...]]:
    """Return (job, partition) -> factors other than 0, the largest first; "nice" is negated."""
    factors: dict[tuple[str, str], tuple[PriorityFactor, ...]] = {}
    for line in sprio.splitlines():
        job_id, *values = (part.strip() for part in line.split("|"))
        if len(values) != len(_FACTORS) + 1 or not job_id.isdecimal():
            continue
        partition, *weighted = values
        parts = [
            PriorityFactor(name, -points if name == "nice" else points)
            for name, text in zip(_FACTORS.values(), weighted, strict=True)
            if (points := _points(text))
        ]
        factors[job_id, partition] = tuple(sorted(parts, key=lambda each: -abs(each.points)))
    return factors


def parse_start(text: str) -> PredictedStart | None:
    """Parse the output of ``sbatch --test-only``; return None if it names no time."""
    match = _START.search(text)
    starts_at = parse_time(match["time"]) if match else None
    if match is None or starts_at is None:
        return None
    return PredictedStart(starts_at, match["partition"], names_in(match["nodes"]))


def _rows(squeue: str) -> list[dict[str, str]]:
    return [row for row in map(_row, squeue.split(ROW_END)) if row is not None]


def _in_order(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the eligible jobs in the scheduler's order: by priority, then by age."""
    return sorted((row for row in rows if _may_start(row)), key=_rank)


def _row(text: str) -> dict[str, str] | None:
    values = text.strip("\n").split(FIELD_END)
    if len(values) != len(WAITING_FIELDS):
        return None
    # A wrapper may print lines before the first row.
    values[0] = values[0].strip().rpartition("\n")[2]
    row = {name: value.strip() for name, value in zip(WAITING_FIELDS, values, strict=True)}
    return row if ids.base(row["JobArrayID"]).isdecimal() else None


def _may_start(row: dict[str, str]) -> bool:
    """Return whether a job is eligible.

    A held job has no priority. A job with a dependency has no eligible time. A job that requests
    too much cannot start.
    """
    return (
        parse_count(row["PriorityLong"]) not in (None, 0)
        and parse_time(row["EligibleTime"]) is not None
        and row["Reason"] not in _NOT_YET
        and explain(row["Reason"]).can_start
    )


def _rank(row: dict[str, str]) -> tuple[int, int]:
    return -(parse_count(row["PriorityLong"]) or 0), parse_count(row["JobID"]) or 0


def _placed(row: dict[str, str], order: list[dict[str, str]]) -> WaitingJob:
    job = _job(row)
    if not job.partitions or row not in order:
        return job
    rivals = [each for each in order if job.partitions[0] in each["Partition"].split(",")]
    place = rivals.index(row)
    counts = [ids.job_count(each["JobArrayID"]) for each in rivals]
    return replace(
        job,
        position=sum(counts[:place]) + 1,
        rivals=sum(counts),
        priority_ahead=parse_count(rivals[place - 1]["PriorityLong"]) if place else None,
        priority_first=parse_count(rivals[0]["PriorityLong"]),
    )


def _job(row: dict[str, str]) -> WaitingJob:
    return WaitingJob(
        job_id=row["JobArrayID"],
        partitions=tuple(row["Partition"].split(",")) if row["Partition"] else (),
        reason=_text(row["Reason"]),
        user=_text(row["UserName"]),
        account=_text(row["Account"]),
        qos=_text(row["QOS"]),
        time_limit_min=parse_minutes(row["TimeLimit"]),
        nodes=parse_count(row["NumNodes"].partition("-")[0]),
        wants=tres_counts(row["tres-alloc"]),
        required_nodes=names_in(row["ReqNodes"]),
        expected_nodes=names_in(row["SchedNodes"]),
        expected_start=parse_time(row["StartTime"]),
        eligible_at=parse_time(row["EligibleTime"]),
        priority=parse_count(row["PriorityLong"]),
        dependency=_text(row["Dependency"]),
        reservation=_text(row["Reservation"]),
    )


def _running(row: dict[str, str]) -> RunningJob:
    return RunningJob(
        job_id=row["JobArrayID"],
        partition=_text(row["Partition"]),
        user=_text(row["UserName"]),
        account=_text(row["Account"]),
        qos=_text(row["QOS"]),
        uses=tres_counts(row["tres-alloc"]),
        ends_at=parse_time(row["EndTime"]),
    )


def _text(text: str) -> str | None:
    return None if text.lower() in _NO_TEXT else text


def _points(text: str) -> int:
    """Parse ``25000``, or the sum of ``cpu=12,mem=3.5``."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?(?=,|$)", text)
    return round(sum(float(number) for number in numbers))
