"""Parse squeue and sacct into :class:`JobInfo`, and define their formats. Pure.

Fields end with a control character that no name contains, and free text comes last, because job
names and reasons may contain blanks, bars and newlines. The shape of ``--json`` changes with every
version. Unknown states become UNKNOWN.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache
from typing import Final, Literal

from hpcflow.errors import SchedulerUnavailable
from hpcflow.model.state import (
    HELD_FOR_ITS_EXIT,
    AttemptState,
    attempt_state,
    normalize_raw_state,
)
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.schedulers.slurm.job_ids import base, leader
from hpcflow.schedulers.slurm.units import parse_time, parse_tres

FIELD_END: Final = "\x1f"
ROW_END: Final = "\x1e"

QUEUE_FIELDS: Final = (
    "JobArrayID", "State", "exit_code", "RestartCnt", "SubmitTime", "StartTime", "EndTime",
    "PreemptTime", "Partition", "Account", "NodeList", "Name", "Reason",
)  # fmt: skip
#: For ``squeue --Format``. A width of 0 (a colon without a number) neither pads nor truncates.
QUEUE_FORMAT: Final = ",".join(
    [f"{name}:{FIELD_END}" for name in QUEUE_FIELDS[:-1]] + [f"{QUEUE_FIELDS[-1]}:{ROW_END}"]
)

ACCOUNTING_FIELDS: Final = (
    "JobID", "State", "ExitCode", "Submit", "Start", "End", "Partition", "Account", "NodeList",
    "Reason", "QOS", "ElapsedRaw", "AllocTRES", "DBIndex", "JobName",
)  # fmt: skip
#: For ``sacct --format``, with ``--parsable2 --delimiter FIELD_END``. The fields of the number of
#: restarts and of the SLUID are an error before Slurm 24.11. All versions have ``DBIndex``: the
#: SLUID as a number, if there is one.
ACCOUNTING_FORMAT: Final = ",".join(ACCOUNTING_FIELDS)

_NO_TEXT: Final = frozenset({"", "none", "null", "(null)", "n/a", "unknown"})


def parse_queue(text: str, fields: Sequence[str] = QUEUE_FIELDS) -> list[JobInfo]:
    """Parse the output of ``squeue --noheader --Format QUEUE_FORMAT``.

    Lines that a wrapper around squeue prints before or after are skipped.

    Args:
        fields: the fields in the output; the last two must be the name and the reason.

    Raises:
        SchedulerUnavailable: a row cannot be parsed. hpcflow would take its job for a missing one.
    """
    *rows, rest = text.split(ROW_END)
    if FIELD_END in rest:
        raise _not_a_row(rest)
    names = tuple(fields)
    return [_queue_row(row, names) for row in rows]


# Most rows do not change between two ticks.
@lru_cache(maxsize=20_000)
def _queue_row(row: str, fields: tuple[str, ...]) -> JobInfo:
    values = row.split(FIELD_END)
    values[0] = values[0].strip().rpartition("\n")[2]
    if len(values) > len(fields):  # the name contains FIELD_END
        name = values[len(fields) - 2 : -1]
        values = [*values[: len(fields) - 2], FIELD_END.join(name), values[-1]]
    if len(values) != len(fields) or not base(values[0].strip()).isdecimal():
        raise _not_a_row(row)
    return _job(dict(zip(fields, values, strict=True)), "queue")


def _not_a_row(text: str) -> SchedulerUnavailable:
    return SchedulerUnavailable(
        f"squeue printed an unexpected row: {text.strip()[:200]!r}",
        next_action="run squeue yourself, and look for a wrapper: type -a squeue",
    )


_FROM_ACCOUNTING: Final = {
    "JobArrayID": "JobID",
    "exit_code": "ExitCode",
    "SubmitTime": "Submit",
    "StartTime": "Start",
    "EndTime": "End",
    "Name": "JobName",
}


def parse_accounting(text: str, fields: Sequence[str] = ACCOUNTING_FIELDS) -> list[JobInfo]:
    """Parse the output of ``sacct --noheader --parsable2 --format ACCOUNTING_FORMAT``.

    sacct subtracts 128 from an exit code above 127: it prints 203 as 75. If that matters, use the
    exit code from the queue or from the job's events.

    Returns:
        The jobs, oldest first.
    """
    rows = (line.split(FIELD_END) for line in text.split("\n"))
    jobs = []
    for row in rows:
        if len(row) != len(fields):
            continue
        columns = dict(zip(fields, row, strict=True))
        renamed = {name: columns.get(_FROM_ACCOUNTING.get(name, name), "") for name in QUEUE_FIELDS}
        job = replace(
            _job(renamed, "accounting"),
            qos=_text(columns.get("QOS", "")),
            elapsed_s=_count(columns.get("ElapsedRaw", "")),
            usage=parse_tres(columns.get("AllocTRES", "")),
            record_id=_count(columns.get("DBIndex", "")),
        )
        jobs.append(since_resize(job))
    return sort_by_age(jobs)


def since_resize(job: JobInfo) -> JobInfo:
    """Return an accounting record, reduced to the time in which the job had these resources.

    The first record of a resized job ends at the resize. Each later record has the resize as its
    submission time. On Slurm 22.05, it keeps the start of the whole job, also for ElapsedRaw
    (``as_mysql_job_start`` in the accounting_storage plugin), so the records overlap. From 24.11
    on, it starts at the resize.
    """
    resized_at, start = job.submitted_at, job.started_at
    if resized_at is None or start is None or resized_at <= start:
        return job
    elapsed_s = job.elapsed_s
    if elapsed_s is not None:
        elapsed_s = max(0, elapsed_s - int((resized_at - start).total_seconds()))
    return replace(job, started_at=resized_at, elapsed_s=elapsed_s)


def sort_by_age(jobs: Iterable[JobInfo]) -> list[JobInfo]:
    """Return the jobs, oldest first; jobs without a submission time before all others."""
    never = datetime.min.replace(tzinfo=timezone.utc)
    return sorted(jobs, key=lambda job: (job.submitted_at or never, job.started_at or never))


def newest_of_each_record(jobs: Iterable[JobInfo]) -> list[JobInfo]:
    """Return the last version of each accounting record, in the order of ``jobs``.

    A long job appears in several answers, and may end between two queries.
    """
    return list({job.record_id or object(): job for job in jobs}.values())


def _job(fields: dict[str, str], source: Literal["queue", "accounting"]) -> JobInfo:
    raw_state = fields["State"].strip()
    state = attempt_state(raw_state)
    nodes = _nodes(fields["NodeList"])
    exit_code, signal = _exit(fields["exit_code"], raw_state, state)
    # squeue shows the expected start of a pending job, and the latest end of a running one.
    # Accounting shows only the past: a REQUEUED record has started and ended.
    is_past = source == "accounting"
    has_started = bool(nodes) and (is_past or state is not AttemptState.QUEUED)
    has_ended = is_past or state is AttemptState.ENDED
    reason = _text(fields["Reason"])
    waits_for_time = state is AttemptState.QUEUED and reason == "BeginTime" and not is_past
    job = JobInfo(
        job_id=leader(fields["JobArrayID"].strip()),
        job_name=fields["Name"].strip(),
        raw_state=raw_state,
        state=state,
        reason=reason,
        partition=_text(fields["Partition"]),
        account=_text(fields["Account"]),
        nodes=nodes,
        exit_code=exit_code,
        signal=signal,
        restarts=_count(fields["RestartCnt"]),
        submitted_at=parse_time(fields["SubmitTime"]),
        begins_at=parse_time(fields["StartTime"]) if waits_for_time else None,
        started_at=parse_time(fields["StartTime"]) if has_started else None,
        ended_at=parse_time(fields["EndTime"]) if has_ended else None,
        preempted_at=parse_time(fields.get("PreemptTime", "")),
        source=source,
    )
    return job if is_past else _before_requeue(job, fields["exit_code"])


def _before_requeue(job: JobInfo, exit_code: str) -> JobInfo:
    """Return the ended execution of a failed job that Slurm will requeue, or holds.

    Slurm counts the restart from the end of the execution on, also while it completes or holds the
    job. The exit code is that of the ended execution.
    """
    word = normalize_raw_state(job.raw_state)
    code, signal = _exit(exit_code, word, AttemptState.ENDED)
    if not job.restarts or not code or word not in (*HELD_FOR_ITS_EXIT, "COMPLETING"):
        return job
    job = replace(job, restarts=job.restarts - 1)
    if word == "COMPLETING":
        return job
    return replace(
        job,
        state=AttemptState.ENDED,
        reason=None,
        exit_code=code,
        signal=signal,
        submitted_at=None,  # Slurm has replaced it by the time at which it held the job
        ended_at=job.submitted_at,
    )


def _exit(text: str, raw_state: str, state: AttemptState) -> tuple[int | None, int | None]:
    """Return exit code and signal from ``3:0`` or, from squeue up to Slurm 22.05, a wait status."""
    if state is not AttemptState.ENDED:
        return None, None
    first, colon, second = text.strip().partition(":")
    try:
        code, signal = (int(first), int(second)) if colon else _from_wait_status(int(first))
    except ValueError:
        return None, None
    return sensible_exit(code, signal, raw_state)


def _from_wait_status(status: int) -> tuple[int, int]:
    if not 0 <= status <= 0xFFFF:
        raise ValueError(status)
    if os.WIFSIGNALED(status):
        return 0, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), 0


def sensible_exit(code: int, signal: int, raw_state: str) -> tuple[int | None, int | None]:
    """Return exit code and signal; accept code 0, Slurm's default, only for completed jobs."""
    if signal:
        return None, signal
    return (code if code or normalize_raw_state(raw_state) == "COMPLETED" else None), None


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except ValueError:
        return (text.strip(),)


def _text(text: str) -> str | None:
    return None if text.strip().lower() in _NO_TEXT else text.strip()


def _count(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None
