"""Slurm through its commands: the scheduler for every site with sbatch.

This module selects the queries, and decides when an answer is proof. submit.py, parse_jobs.py and
parse_cluster.py parse the answers. outlook.py has the queries of limits and pending jobs, and is
not imported for a submission.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from hpcflow.clock import Clock
from hpcflow.errors import SchedulerError, SchedulerUnavailable, in_one_line
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo, JobRef, Lookup, SubmitRequest
from hpcflow.schedulers.slurm import job_ids as ids
from hpcflow.schedulers.slurm import parse_cluster, parse_jobs
from hpcflow.schedulers.slurm.run_command import (
    ask,
    run_query,
    run_submission,
    strip_prefix,
    unavailable,
)
from hpcflow.schedulers.slurm.submit import job_from
from hpcflow.schedulers.slurm.units import format_time
from hpcflow.sites.slurm_conf import configured_name

if TYPE_CHECKING:
    from hpcflow.schedulers.waiting import ClusterQueue, IdleNode, PredictedStart, WaitingJob
    from hpcflow.sites.live import ClusterInfo
    from hpcflow.sites.standing import Reservation, Standing

_log = logging.getLogger(__name__)

#: sbatch itself retries for two minutes while the queue is full. After a shorter limit, it would be
#: unknown whether a job exists.
SUBMIT_TIMEOUT_S: Final = 180.0
ACCOUNTING_TIMEOUT_S: Final = 20.0
#: Short, because the answer only improves an error message or a comparison.
_SACCTMGR_TIMEOUT_S: Final = 10.0

#: How far the clocks of the login node and of slurmctld may differ.
_CLOCK_SLACK: Final = timedelta(minutes=10)
#: Subtracted from MinJobAge, for which the queue remembers jobs.
_MEMORY_SLACK: Final = timedelta(seconds=30)

#: With more ids than fit on a command line, hpcflow asks for all jobs of the user.
_MAX_IDS: Final = 5_000
#: The error of slurmdbd if MaxQueryTimeRange limits queries without job ids.
_TOO_WIDE: Final = "too wide of a date range"
#: Each window costs slurmdbd a full query.
_MAX_WINDOWS: Final = 100
#: Seconds until a failed query of the cluster's name is repeated: each may take a minute.
_ASK_NAME_AGAIN_S: Final = 60.0
_CANCEL_AT_ONCE: Final = 1_000
_UPDATE_AT_ONCE: Final = 1_000

#: Queries of the cluster's configuration. Without ``--local``, sinfo includes a federation.
CLUSTER_QUESTIONS: Final = {
    "config": ("scontrol", "show", "config"),
    "partitions": ("scontrol", "show", "partition", "--all", "--oneliner"),
    "sinfo": (
        *("sinfo", "--local", "--noheader", "--all", "--exact", "--format"),
        parse_cluster.NODES_FORMAT,
    ),
    "nodes": ("scontrol", "show", "node", "--all", "--oneliner"),
}

#: Errors of scancel for jobs that need no cancel.
_NOTHING_TO_CANCEL: Final = (
    "Invalid job id",
    "already completing or completed",
    "Job has already finished",
)

#: Errors of scontrol for jobs that are not pending.
_NOTHING_TO_START: Final = (
    "Invalid job id",
    "already completing or completed",
    "Job has already finished",
    "Job is no longer pending execution",
)


class SlurmCommands:
    """A :class:`hpcflow.schedulers.base.Scheduler`.

    Args:
        has_accounting: whether the site has slurmdbd; then a query without its answer proves
            nothing.
        cluster_name: the site's, if known.
        submit_timeout_s: the timeout of sbatch.
        accounting_timeout_s: the timeout of sacct; large databases are slow.
    """

    name = "slurm"

    def __init__(
        self,
        *,
        clock: Clock,
        has_accounting: bool = True,
        cluster_name: str | None = None,
        submit_timeout_s: float = SUBMIT_TIMEOUT_S,
        accounting_timeout_s: float = ACCOUNTING_TIMEOUT_S,
    ) -> None:
        self._clock = clock
        self._has_accounting = has_accounting
        self._cluster_name = cluster_name
        self._submit_timeout_s = submit_timeout_s
        self._accounting_timeout_s = accounting_timeout_s
        self._settings: dict[str, str] | None = None
        self._ask_name_at = 0.0
        self._accounts: dict[str, frozenset[str] | None] = {}

    def cluster(self) -> str | None:
        # Reading slurm.conf is fast. But a wrapper may point Slurm's programs to another file, so
        # only the expected name is accepted.
        configured = configured_name()
        if configured is not None and configured == self._cluster_name:
            return configured
        now = self._clock.monotonic()
        if self._settings is not None or now >= self._ask_name_at:
            try:
                return self._read_settings().get("ClusterName")
            except SchedulerUnavailable as error:
                _log.debug("the name of the cluster is unknown: %s", error)
                self._ask_name_at = now + _ASK_NAME_AGAIN_S
        return configured

    def submit(self, request: SubmitRequest) -> JobRef:
        answer = run_submission(
            ["sbatch", "--parsable", os.fspath(request.script)],
            cwd=request.directory,
            timeout_s=self._submit_timeout_s,
            lock_fd=request.lock_fd,
        )
        return job_from(answer)

    def most_tasks(self) -> int:
        size = self._read_settings().get("MaxArraySize", "")
        return max(1, int(size)) if size.isdecimal() else 1

    def find(self, job_name: str, since: datetime) -> Lookup:
        queued = self._queue(job_name)
        jobs = {job.job_id: job for job in queued if job.job_name == job_name}
        is_certain = True
        if self._has_accounting and not self._queue_remembers(since):
            try:
                records = self._accounting(since, "--name", job_name)
            except SchedulerUnavailable as error:
                _log.warning("%s", in_one_line(error))
                is_certain = False
            else:
                # The queue's entry wins: accounting lags behind.
                jobs = {job.job_id: job for job in records if job.job_name == job_name} | jobs
        return Lookup(tuple(parse_jobs.sort_by_age(jobs.values())), is_certain)

    def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:
        # Always ask for all jobs of the user: one expired id makes some versions of squeue fail,
        # and the cost to the controller is the same.
        jobs = self._queue()
        return select(jobs, job_ids) if job_ids else jobs

    def accounting(
        self,
        job_ids: Sequence[str],
        since: datetime,
        *,
        job_names: Sequence[str] = (),
        is_named: Callable[[str], bool] | None = None,
    ) -> list[JobInfo]:
        known = [job_id for job_id in job_ids if ids.is_single_job_id(job_id)]
        if not (known or job_names or is_named) or not self._has_accounting:
            return []
        # sacct selects jobs that match both the ids and the names.
        is_narrow = not (job_names or is_named) and 0 < len(known) <= _MAX_IDS
        options: tuple[str, ...] = ("--jobs", ",".join(known)) if is_narrow else ()
        if job_names and not (job_ids or is_named or any("," in name for name in job_names)):
            options = ("--name", ",".join(job_names))
        records = self._accounting(since, *options, is_any_age=is_named is not None)
        by_id, names = select(records, job_ids), frozenset(job_names)
        seen = {ids.base(job.job_id) for job in by_id}
        by_name = (job for job in records if job.job_name in names)
        more = [job for job in by_name if ids.base(job.job_id) not in seen]
        if is_named is not None:  # may add tasks of an array that ``by_id`` has other tasks of
            rows = {(job.job_id, job.submitted_at) for job in (*by_id, *more)}
            so_named = (job for job in records if is_named(job.job_name))
            more += [job for job in so_named if (job.job_id, job.submitted_at) not in rows]
        return parse_jobs.sort_by_age([*by_id, *more]) if more else by_id

    def cancel(self, job_ids: Sequence[str]) -> None:
        known = [job_id for job_id in job_ids if ids.is_job_id(job_id)]
        for start in range(0, len(known), _CANCEL_AT_ONCE):
            answer = run_query(["scancel", *known[start : start + _CANCEL_AT_ONCE]])
            left = [line for line in answer.stderr.splitlines() if not _is_harmless(line)]
            if any("Access/permission denied" in line for line in left):
                raise SchedulerError(f"you may not cancel these jobs: {answer.complaint}")
            if answer.exit_code != 0 and (left or not answer.stderr):
                raise unavailable(answer)

    def start_now(self, job_ids: Sequence[str]) -> dict[str, str]:
        known = [job_id for job_id in job_ids if ids.is_single_job_id(job_id)]
        refused: dict[str, str] = {}
        for start in range(0, len(known), _UPDATE_AT_ONCE):
            some = ",".join(known[start : start + _UPDATE_AT_ONCE])
            answer = run_query(["scontrol", "update", f"jobid={some}", "StartTime=now"])
            if answer.exit_code == 0:
                continue
            for line in answer.stderr.splitlines():
                message, _, job_id = line.rpartition(" for job ")
                if any(text in line for text in _NOTHING_TO_START):
                    continue
                if job_id not in known:
                    raise unavailable(answer)  # the error is not about one job
                refused[job_id] = strip_prefix(message, answer.program)
        return refused

    def restart_delay_s(self) -> float:
        return parse_cluster.restart_delay_s(self._read_settings())

    def cluster_info(self) -> ClusterInfo:
        settings, partitions = self._read_settings(), ask(CLUSTER_QUESTIONS["partitions"])
        return parse_cluster.cluster_info(
            settings, partitions, self._ask_nodes(partitions), self._ask_qos()
        )

    def accounts(self, user: str) -> frozenset[str] | None:
        if not self._has_accounting:
            return None
        if user not in self._accounts:
            self._accounts[user] = self._ask_accounts(user)
        return self._accounts[user]

    def standing(self, user: str) -> Standing | None:
        from hpcflow.schedulers.slurm import outlook
        from hpcflow.sites.standing import are_enforced

        try:
            settings = self._read_settings()
        except SchedulerUnavailable as error:
            _log.debug("the settings of the cluster are unknown: %s", error)
            settings = {}
        silent = settings and not parse_cluster.has_accounting(settings)
        if silent or not self._has_accounting:
            return None
        found = outlook.ask_standing(user, settings.get("ClusterName") or self._cluster_name)
        if found is None:
            return None
        flags = settings.get("PriorityFlags", "").upper().split(",")
        return replace(
            found,
            are_limits_enforced="AccountingStorageEnforce" not in settings
            or are_enforced(settings),
            is_fair_tree="NO_FAIR_TREE" not in flags,
        )

    def reservations(self) -> list[Reservation]:
        from hpcflow.schedulers.slurm import outlook

        now = self._clock.now()
        return [each for each in outlook.ask_reservations() if each.end > now]

    def waiting(self, job_ids: Sequence[str]) -> list[WaitingJob]:
        from hpcflow.schedulers.slurm import outlook

        return outlook.ask_waiting(job_ids)

    def cluster_queue(self) -> ClusterQueue:
        from hpcflow.schedulers.slurm import outlook

        return outlook.ask_cluster_queue()

    def idle_nodes(self) -> list[IdleNode]:
        from hpcflow.schedulers.slurm import outlook

        return outlook.ask_idle_nodes()

    def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
        from hpcflow.schedulers.slurm import outlook

        return outlook.ask_predicted_start(request, self._alive, self.cancel)

    def _queue(self, job_name: str | None = None) -> list[JobInfo]:
        """Return all jobs of this user that slurmctld remembers, or those of one name."""
        words = ["squeue", "--me", "--all", "--states=all", "--noheader", "--Format"]
        options = [] if job_name is None else ["--name", job_name]
        return parse_jobs.parse_queue(ask([*words, parse_jobs.QUEUE_FORMAT, *options]))

    def _alive(self, job_name: str) -> list[str]:
        """Return the ids of the pending and running jobs of a name."""
        jobs = self._queue(job_name)
        return [job.job_id for job in jobs if job.state is not AttemptState.ENDED]

    def _accounting(
        self, since: datetime, *options: str, is_any_age: bool = False
    ) -> list[JobInfo]:
        earliest = since - _CLOCK_SLACK
        argv = [
            *("sacct", "--duplicates", "--allocations", "--noheader", "--parsable2"),
            "--noconvert",  # 2000M, and not 1.95G
            f"--delimiter={parse_jobs.FIELD_END}",
            f"--format={parse_jobs.ACCOUNTING_FORMAT}",
        ]
        text = self._ask_in_windows(argv, earliest, [f"--uid={os.geteuid()}", *options])
        # Slurm reuses job ids: an older job may have the same one.
        return parse_jobs.newest_of_each_record(
            job
            for job in parse_jobs.parse_accounting(text)
            if is_any_age or job.submitted_at is None or job.submitted_at >= earliest
        )

    def _ask_in_windows(self, argv: list[str], since: datetime, options: list[str]) -> str:
        """Query all the time after ``since``, in windows that slurmdbd accepts.

        The windows leave no gap, because a job may start long after its submission.
        """
        length = self._clock.now() - since
        shortest, begin = length / _MAX_WINDOWS, since
        lines: dict[str, None] = {}  # a job can be in several windows
        while True:
            is_last = begin + length >= self._clock.now()
            window = [f"--starttime={format_time(begin)}"]
            if not is_last:
                window.append(f"--endtime={format_time(begin + length)}")
            try:
                text = ask([*argv, *window, *options], timeout_s=self._accounting_timeout_s)
            except SchedulerUnavailable as error:
                if _TOO_WIDE not in error.message.lower() or length / 2 < shortest:
                    raise
                length /= 2
                continue
            lines.update(dict.fromkeys(text.split("\n")))
            if is_last:
                return "\n".join(lines)
            begin += length

    def _ask_accounts(self, user: str) -> frozenset[str] | None:
        """Return the user's accounts; None if unknown or empty, as without enforced accounts."""
        try:
            cluster = self._read_settings().get("ClusterName")
            words = "sacctmgr --noheader --parsable2 show associations format=cluster,account"
            text = ask([*words.split(), f"user={user}"], timeout_s=_SACCTMGR_TIMEOUT_S)
        except SchedulerUnavailable as error:
            _log.debug("accounts of %s are unknown: %s", user, error)
            return None
        return parse_cluster.parse_accounts(text, cluster) or None

    def _ask_nodes(self, partitions: str) -> str | None:
        """Return Slurm's list of nodes; None if this user may not see it."""
        # sinfo prints a line for each kind of node, scontrol a kilobyte for each node.
        question = "nodes" if parse_cluster.keeps_cpus(partitions) else "sinfo"
        answer = run_query(CLUSTER_QUESTIONS[question])
        if answer.exit_code == 0:
            return answer.stdout
        if "Access/permission denied" in answer.stderr:
            return None
        raise unavailable(answer)

    def _ask_qos(self) -> str | None:
        from hpcflow.schedulers.slurm import outlook

        if not (self._has_accounting and parse_cluster.has_accounting(self._read_settings())):
            return None
        try:
            return ask(outlook.questions("", ())["qos"], timeout_s=_SACCTMGR_TIMEOUT_S)
        except SchedulerUnavailable as error:
            _log.debug("the QOSes are unknown: %s", error)
            return None

    def _queue_remembers(self, since: datetime) -> bool:
        """Return whether squeue alone still has all jobs submitted after ``since``."""
        min_job_age_s = parse_cluster.seconds(self._read_settings().get("MinJobAge"))
        if min_job_age_s is None:
            return False
        age = self._clock.now() - since
        return min_job_age_s == 0 or age < timedelta(seconds=min_job_age_s) - _MEMORY_SLACK

    def _read_settings(self) -> dict[str, str]:
        if self._settings is None:
            self._settings = parse_cluster.parse_settings(ask(CLUSTER_QUESTIONS["config"]))
        return self._settings


def select(jobs: Iterable[JobInfo], job_ids: Sequence[str]) -> list[JobInfo]:
    """Return the rows of ``job_ids``; split a row of pending array tasks into the wanted tasks."""
    wanted_by_number: dict[str, list[str]] = {}
    for job_id in dict.fromkeys(job_ids):
        wanted_by_number.setdefault(ids.base(job_id), []).append(job_id)
    chosen = []
    for job in jobs:
        for wanted in wanted_by_number.get(ids.base(job.job_id), ()):
            if job.job_id == wanted or ids.base(job.job_id) == wanted:
                chosen.append(job)
            elif ids.covers(job.job_id, wanted):
                chosen.append(replace(job, job_id=wanted))
    return chosen


def _is_harmless(complaint: str) -> bool:
    return not complaint.strip() or any(text in complaint for text in _NOTHING_TO_CANCEL)
