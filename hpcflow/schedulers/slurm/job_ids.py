"""Parse Slurm's job ids: ``123``, an array task ``123_4``, several pending ones ``123_[0-9,12%2]``,
a component of a heterogeneous job ``123+1``.
"""

from __future__ import annotations

import re
from typing import Final

#: Slurm's own limit of MaxArraySize is 4,000,001.
_MOST_TASKS: Final = 4_000_000
_JOB_ID: Final = re.compile(r"[1-9]\d*(_(\d+|\[[\d,:%-]+\])|\+\d+)?", re.ASCII)

_SINGLE_JOB_ID: Final = re.compile(r"[1-9]\d{0,9}(_\d{1,7}|\+\d{1,4})?", re.ASCII)


def is_job_id(text: str) -> bool:
    return _JOB_ID.fullmatch(text) is not None


def is_single_job_id(text: str) -> bool:
    """Return whether ``text`` is the id of one job or one array task.

    sacct rejects a query with one invalid id, and ids may come from a store that other users can
    write to.
    """
    return _SINGLE_JOB_ID.fullmatch(text) is not None and int(base(text)) < 1 << 32


def base(job_id: str) -> str:
    """Return the number that an array, or a heterogeneous job, has in common."""
    return re.split(r"[_+]", job_id, maxsplit=1)[0]


def leader(listed: str) -> str:
    """Return ``123`` for ``123+0``, and other ids unchanged.

    sbatch, the script's environment and scancel use ``123`` for the whole heterogeneous job.
    """
    return listed.removesuffix("+0")


def covers(listed: str, wanted: str) -> bool:
    """Return whether a row of squeue with the id ``listed`` includes the job ``wanted``."""
    if listed == wanted or base(listed) == wanted:
        return True
    number, _, tasks = listed.partition("_")
    wanted_number, _, wanted_task = wanted.partition("_")
    if number != wanted_number or not tasks.startswith("[") or not wanted_task.isdecimal():
        return False
    return _contains(tasks.strip("[]").partition("%")[0], int(wanted_task))


def tasks_of(job_id: str) -> list[int]:
    """Return the array tasks in an id: one for ``123_4``, four for ``123_[0-2,7%2]``, none for
    ``123``.
    """
    tasks = job_id.partition("_")[2]
    if tasks.isdecimal():
        return [int(tasks)]
    found: list[int] = []
    for part in tasks.strip("[]").partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdecimal():
            end = int(last) if last.isdecimal() else int(first)
            stride = int(step) if step.isdecimal() and int(step) else 1
            found += range(int(first), min(end, int(first) + _MOST_TASKS) + 1, stride)
    return found


def job_count(listed: str) -> int:
    """Return how many jobs of a row may run at the same time: four for ``123_[0-99%4]``."""
    ranges, _, throttle = listed.partition("_")[2].strip("[]").partition("%")
    count = 0
    for part in ranges.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdecimal():
            stride = int(step) if step.isdecimal() and int(step) else 1
            end = int(last) if last.isdecimal() else int(first)
            count += max(0, end - int(first)) // stride + 1
    most = int(throttle) if throttle.isdecimal() and int(throttle) else count
    return max(1, min(count, most))


def _contains(ranges: str, task: int) -> bool:
    """Return whether ranges contain a task: ``0-9,12,20-40:5`` contains 12 and 25."""
    for part in ranges.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if not first.isdecimal():
            continue
        end = int(last) if last.isdecimal() else int(first)
        stride = int(step) if step.isdecimal() and int(step) else 1
        if int(first) <= task <= end and (task - int(first)) % stride == 0:
            return True
    return False
