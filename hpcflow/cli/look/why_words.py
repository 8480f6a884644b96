"""Print why a job is pending, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from hpcflow.errors import shell_word
from hpcflow.model.units import counted, format_duration
from hpcflow.pending.bounds import (
    amount_words,
    limit_words,
    minutes_words,
    nodes_misfit,
    shortage_words,
)
from hpcflow.schedulers.slurm.reasons import Kind

if TYPE_CHECKING:
    from hpcflow.pending.ahead import Obstacle
    from hpcflow.pending.why import Wait
    from hpcflow.placement.alternatives import Alternative
    from hpcflow.schedulers.waiting import WaitingJob
    from hpcflow.sites.live import PartitionInfo

_TIME: Final = "%Y-%m-%d %H:%M:%S"
#: Reasons that can go away when other jobs end.
_BY_OTHERS: Final = (Kind.TURN, Kind.ROOM, Kind.LIMIT, Kind.DEPENDENCY, Kind.LICENCE)


def wait_lines(wait: Wait, *, held: bool, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line; a further line of the same name has an empty one."""
    job, reason = wait.job, wait.reason
    yield "waits", f"{reason.words}  [{reason.code}]"
    if not reason.can_start:
        yield "", "it cannot start as it is"
    if held:
        yield "", "the run is also held: hpcflow submits no attempt after this one"
    yield "job", _job(wait, now)
    yield "position", _position(wait)
    if job.priority is not None:
        yield "priority", _priority(wait)
    for number, account in enumerate(wait.accounts):
        points = "" if account.points is None else f", {account.points} points"
        own = ", the account of this job" if account.is_own else ""
        text = f"{account.name} has the factor {account.factor:.3f}{points}{own}"
        yield "" if number else "fair share", text
    yield "start", _start(wait, now)
    yield from _limits(wait)
    for number, each in enumerate(wait.obstacles):
        yield "" if number else "reserved", _obstacle(each, now)
    if job.dependency:
        yield "depends on", job.dependency


def better_words(better: Alternative, run_id: str) -> str:
    """Return ``in partition spot it would start now, 2h 10m sooner: hpcflow cancel …``."""
    from hpcflow.placement.alternatives import NOW_S

    waits_s = better.ranked.candidate.waits_s or 0.0
    when = "now" if waits_s < NOW_S else f"in {format_duration(waits_s)}"
    with_it = {
        "partition": f"in partition {better.value}",
        "account": f"with account {better.value}",
        "qos": f"with QOS {better.value}",
        "nodes": f"with {counted(better.value, 'node')}" if better.key == "nodes" else "",
        "gpus_per_node": f"with {counted(better.value, 'GPU')} per node",
    }.get(better.key) or f"with a time limit of {minutes_words(better.value)}"
    words = f"{with_it} it would start {when}"
    if better.sooner_s is not None:
        words += f", {format_duration(better.sooner_s)} sooner"
    if better.slower > 1:
        words += f"; the same work takes up to {better.slower} times as long"
    run = shell_word(run_id)
    return f"{words}: hpcflow cancel {run}, then hpcflow resume {run} --set {better.change}"


def _job(wait: Wait, now: datetime) -> str:
    job = wait.job
    since = ""
    if job.eligible_at is not None and job.eligible_at <= now:
        waited = format_duration((now - job.eligible_at).total_seconds())
        since = f", eligible for {waited}"
    limit = "" if job.time_limit_min is None else f", {minutes_words(job.time_limit_min)}"
    nodes = "" if job.nodes is None else f", {counted(job.nodes, 'node')}"
    must = f" ({', '.join(job.required_nodes)} and no other)" if job.required_nodes else ""
    account = "" if job.account is None else f", account {job.account}"
    qos = "" if job.qos is None else f", QOS {job.qos}"
    partitions = ", ".join(job.partitions)
    return f"{job.job_id} in {partitions}{nodes}{must}{limit}{account}{qos}{since}"


def _position(wait: Wait) -> str:
    job = wait.job
    if job.position is None:
        return "none: it cannot start yet, even without jobs ahead of it"
    place = f"{job.position} of {job.rivals} in {job.partitions[0]}"
    if not wait.sees_others:
        return f"{place}, among your own jobs: this site does not show others"
    is_next = job.position == 1 and wait.reason.limit is None
    return f"{place}: next" if is_next else place


def _priority(wait: Wait) -> str:
    job = wait.job
    words = str(job.priority)
    if job.priority_ahead is not None and job.priority_first is not None:
        words += f", just before it {job.priority_ahead}, the first {job.priority_first}"
    total = sum(abs(each.points) for each in job.factors)
    parts = [f"{each.name} {each.points} ({abs(each.points) / total:.0%})" for each in job.factors]
    return f"{words}; made of {', '.join(parts)}" if parts else words


def _start(wait: Wait, now: datetime) -> str:
    job = wait.job
    if job.expected_start is None:
        return "Slurm has not planned it yet"
    where = f" on {', '.join(job.expected_nodes)}" if job.expected_nodes else ""
    if job.expected_start <= now:
        return f"any moment{where}"
    left = format_duration((job.expected_start - now).total_seconds())
    when = f"{job.expected_start:{_TIME}} UTC, in {left}{where}"
    until = max((each.reservation.end for each in wait.obstacles if each.takes_all), default=now)
    others_hold_it = wait.reason.kind in _BY_OTHERS and job.expected_start > until
    return f"{when}, or earlier, if other jobs end early" if others_hold_it else when


def _limits(wait: Wait) -> Iterator[tuple[str, str]]:
    name = "limits"
    for limit in wait.limits:
        full = ", full" if limit.is_full else shortage_words(limit, wait.job)
        yield name, f"{limit_words(limit)}: {amount_words(limit)}{full}"
        name = ""
    if wait.partition is not None and (text := _partition(wait.partition, wait.job)):
        yield name, text


def _partition(partition: PartitionInfo, job: WaitingJob) -> str:
    """Return what the partition does not allow of this job, or that it is down."""
    problems = [] if partition.is_up else [f"partition {partition.name} is not up"]
    most = partition.time_limit_max_min
    if most is not None and job.time_limit_min is not None and job.time_limit_min > most:
        problems.append(f"partition {partition.name} allows at most {minutes_words(most)}")
    if (words := nodes_misfit(partition, job)) is not None:
        problems.append(words)
    return "; ".join(problems)


def _obstacle(obstacle: Obstacle, now: datetime) -> str:
    each = obstacle.reservation
    what = "maintenance" if each.is_maintenance else "reservation"
    nodes = counted(len(each.nodes), "node")
    if obstacle.takes_all:
        nodes = "all nodes that it could have"
    elif obstacle.nodes is not None:
        nodes = f"{obstacle.nodes} of {obstacle.of_nodes} nodes"
    when = f"from {each.start:{_TIME}} to {each.end:{_TIME}} UTC"
    words = f"{what} {each.name} has {nodes} {when}"
    if each.start <= now:
        return f"{words}: until then nothing else starts there"
    if obstacle.fits_min is None:
        left = format_duration((each.start - now).total_seconds())
        return f"{words}: it begins in {left}, and only a job with a shorter limit could start now"
    return f"{words}: a limit of {minutes_words(obstacle.fits_min)} or less would end before it"
