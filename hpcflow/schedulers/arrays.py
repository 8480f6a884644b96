"""Show the tasks of a Slurm array as separate jobs.

An array has one job name, and its pending tasks share one row of squeue. Here each task is a job
``123_4`` with the name of its attempt, so no other module needs to know arrays. A file that was
written before sbatch maps tasks to attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo, Lookup, Scheduler
from hpcflow.schedulers.slurm.job_ids import tasks_of

#: Array name -> job names of its attempts, in the order of its tasks.
Arrays = Mapping[str, Sequence[str]]


def show_tasks(inner: Scheduler, arrays: Callable[[], Arrays]) -> Scheduler:
    """Return a scheduler that shows the array tasks of ``inner`` as jobs.

    Args:
        arrays: returns the arrays; called for each query.
    """
    return cast(Scheduler, _ArrayScheduler(inner, arrays))


class _ArrayScheduler:
    def __init__(self, inner: Scheduler, arrays: Callable[[], Arrays]) -> None:
        self._inner, self._arrays = inner, arrays

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy has no attributes before its __init__
            raise AttributeError(name)
        return getattr(self._inner, name)  # every other query is that of the wrapped scheduler

    def find(self, job_name: str, since: datetime) -> Lookup:
        is_certain = True
        found: list[JobInfo] = []
        for array_name in _arrays_of(job_name, self._arrays()):
            lookup = self._inner.find(array_name, since)
            jobs = [job for job in self._shown(lookup.jobs) if job.job_name == job_name]
            if any(job.state is not AttemptState.ENDED or job.started_at for job in jobs):
                return replace(lookup, jobs=tuple(jobs))
            # A job that never ran may be a refused one, whose attempt was submitted again.
            found = [*jobs, *found]
            is_certain = is_certain and lookup.is_certain
        # A resubmitted attempt is a job of this name, not an array task.
        alone = self._inner.find(job_name, since)
        return Lookup((*found, *alone.jobs), is_certain=alone.is_certain and is_certain)

    def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:
        wanted = frozenset(job_ids)
        if not any(each.partition("_")[1] for each in wanted) and not self._arrays():
            return self._inner.queue(job_ids)
        return [
            job
            for job in self._shown(self._inner.queue())
            if not wanted or job.job_id in wanted or job.job_id.partition("_")[0] in wanted
        ]

    def accounting(
        self,
        job_ids: Sequence[str],
        since: datetime,
        *,
        job_names: Sequence[str] = (),
        is_named: Callable[[str], bool] | None = None,
    ) -> list[JobInfo]:
        arrays = self._arrays()
        array_names = {array_name for name in job_names for array_name in _arrays_of(name, arrays)}
        queried = dict.fromkeys([*job_names, *sorted(array_names)])
        records = self._inner.accounting(job_ids, since, job_names=list(queried), is_named=is_named)
        other_arrays = array_names - set(job_names)
        wanted_ids, wanted_names = frozenset(job_ids), frozenset(job_names)
        found: list[JobInfo] = []
        for job in records:
            if job.job_name not in arrays and job.job_name not in other_arrays:
                found.append(job)
                continue
            found += [
                each
                for each in self._shown([job])
                if each.job_id in wanted_ids
                or each.job_name in wanted_names
                or (is_named is not None and is_named(each.job_name))
            ]
        return found

    def _shown(self, jobs: Iterable[JobInfo]) -> Iterator[JobInfo]:
        arrays = self._arrays()
        for job in jobs:
            names = arrays.get(job.job_name.strip())
            if names is None:
                yield job
                continue
            number = job.job_id.partition("_")[0]
            for task in tasks_of(job.job_id):
                if task < len(names):
                    yield replace(job, job_id=f"{number}_{task}", job_name=names[task])


def _arrays_of(job_name: str, arrays: Arrays) -> list[str]:
    """Return the names of the arrays that contain this attempt, newest first.

    If Slurm refuses an array, the next array contains its attempts.
    """
    found = [array for array, names in arrays.items() if job_name in names]
    return sorted(found, key=_number, reverse=True)


def _number(array: str) -> int:
    number = array.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0
