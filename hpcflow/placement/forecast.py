"""Query the live cluster about a run that is not submitted: limits, standing, expected start.

docs/placement.md says how the start is predicted. Each query is made once, when it is first needed.
An answer that is missing is None, and is noted in ``unknown``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError, SubmissionDelayed, SubmissionRefused
from hpcflow.model.execution import Launcher
from hpcflow.model.ids import job_name, make_run_id
from hpcflow.model.kinds import AUTO, is_word
from hpcflow.model.run import Provenance, Run
from hpcflow.model.spec import RunSpec
from hpcflow.ownership import temporary_folder
from hpcflow.pending.ahead import obstacles
from hpcflow.pending.bounds import amount_words, excess_words, has_room, limit_words, limits_on
from hpcflow.pending.room import gap_min, idle_now, in_the_way, is_rough, room_under
from hpcflow.placement.choice import Start
from hpcflow.placement.price import usage_of
from hpcflow.placement.run_paths import run_dir_on
from hpcflow.rendering.directives import directives
from hpcflow.schedulers.base import Scheduler, SubmitRequest
from hpcflow.schedulers.clusters import other_cluster
from hpcflow.schedulers.waiting import ClusterQueue, IdleNode, PredictedStart, WaitingJob
from hpcflow.settings import Settings
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.placement import Placement, added_options
from hpcflow.sites.schema import SchedulerKind, Site
from hpcflow.sites.standing import MINUTES, Limit, Reservation, Standing, are_enforced, default_qos

#: The most time for all queries before a submission.
PATIENCE_S: Final = 30.0
#: Options of sbatch that restrict the nodes of a job.
_OF_NODES: Final = frozenset(
    {"--constraint", "--exclude", "--nodelist", "--reservation", "--exclusive", "-C", "-x", "-w"}
)
_Answer = TypeVar("_Answer")
#: Limits that one job alone can exceed; names without their suffix ``PerJob``.
_OF_ONE_JOB: Final = frozenset(
    {"MaxTRES", "MaxWall", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"}
)


class Forecast:
    """The answers of one site's scheduler.

    Args:
        connect: connects to the scheduler, when it is first needed.
        ignored_jobs: ids of jobs that will be cancelled before the run is submitted.
    """

    def __init__(
        self,
        site: Site,
        connect: Callable[[], Scheduler],
        *,
        settings: Settings,
        clock: Clock,
        ignored_jobs: Sequence[str] = (),
    ) -> None:
        self._ignored_jobs = frozenset(ignored_jobs)
        self._site, self._connect = site, connect
        self._settings, self._clock = settings, clock
        self.unknown: list[str] = []
        self._spent_s = 0.0

    @cached_property
    def accounts(self) -> Sequence[str]:
        """Return the accounts that this user may charge; empty if unknown.

        Names that a config cannot have are left out, because they would be written to a script.
        """
        found = self.standing.associations if self.standing else ()
        names = dict.fromkeys(each.account for each in found)
        strange = [name for name in names if not is_word(name) or name == AUTO]
        self.unknown += (f"account {name!r}: not a valid name in a config" for name in strange)
        return [name for name in names if name not in strange]

    def account(self, placement: Placement) -> str | None:
        if placement.account is not None or self.standing is None:
            return placement.account
        default = self.standing.association(None, placement.slurm_partition)
        return default.account if default else None

    def fair_share(self, placement: Placement) -> float | None:
        account = self.account(placement)
        if account is None or self.standing is None:
            return None
        share = self.standing.share(account, placement.slurm_partition)
        return share.factor if share else None

    def other_qos(self, placement: Placement) -> Sequence[str]:
        if self.standing is None:
            return ()
        own = as_job(placement, self.standing).qos
        known = self.standing.association(placement.account, placement.slurm_partition)
        return [name for name in (known.qos if known else ()) if name != own and is_word(name)]

    def gap_min(self, placement: Placement) -> int | None:
        """Return the longest time limit with which a job there ends before the next planned start;
        None if no pending job has one."""
        job = as_job(placement, self.standing)
        return gap_min(job, self._other_jobs, self.cluster, self._clock.now())

    def limit(self, placement: Placement) -> str | None:
        """Return why a job of this size can never start there; None if no reason is known."""
        cluster, name = self.cluster, placement.slurm_partition
        live = cluster.partition(name) if cluster is not None and name is not None else None
        if cluster is not None and name is not None and live is None:
            return f"the cluster has no partition {name}"
        if live is not None and not live.is_up:
            return f"partition {name} takes no jobs: it is not up"
        return too_large(as_job(placement, self.standing), self._limits(placement))

    def start(self, spec: RunSpec, placement: Placement) -> Start | None:
        """Return the expected start of a job there that is submitted now; None if unknown.

        Raises:
            SubmissionRefused: the scheduler would refuse it.
            SubmissionDelayed: the scheduler would not accept it now, or a limit is full for an
                unknown time.
        """
        found = self._room(spec, placement)
        if found is None:
            return None
        job, now = as_job(placement, self.standing), self._clock.now()
        rough = is_rough(job, self._queue.waiting)
        if rough:  # then the predicted nodes are rough too
            nodes = self._idle_now(job, spec, placement)
            found = PredictedStart(now if nodes else found.starts_at, found.partition, nodes)
            rough = not nodes
        before = in_the_way(job, found, self._other_jobs, self.cluster)
        start = Start(found.starts_at)
        if before or rough:
            planned = [each.expected_start for each in before if each.expected_start is not None]
            start = Start(max([start.at, *planned]), len(before), is_estimate=True)
        for limit in self._limits(placement):
            if limit.used is None or has_room(limit, job):
                continue
            words = f"{limit_words(limit)}, {amount_words(limit)}"
            until = room_under(limit, job, self._queue.running)
            if until is None:
                raise SubmissionDelayed(words)
            if until > start.at:
                start = replace(start, at=until, limit=words)
        return start

    def _limits(self, placement: Placement) -> Sequence[Limit]:
        cluster, standing, name = self.cluster, self.standing, placement.slurm_partition
        if cluster is None or standing is None or not are_enforced(cluster.settings):
            return ()
        partition = cluster.partition(name) if name is not None else None
        return limits_on(as_job(placement, standing), standing, partition).every

    def _room(self, spec: RunSpec, placement: Placement) -> PredictedStart | None:
        """Return when and where running jobs leave room."""
        scheduler = self._scheduler
        if scheduler is None or self._is_silent("when a job would start"):
            return None
        run = self._probe(spec, placement)
        begin = self._clock.monotonic()
        try:
            with temporary_folder() as folder:
                script = Path(folder) / "job.sbatch"
                script.write_text(self._script(run, placement))
                directory = self._directory(run, placement) or script.parent
                name = job_name(run.run_id, 1)
                found = scheduler.predicted_start(SubmitRequest(script, directory, name))
        except (SubmissionRefused, SubmissionDelayed):
            raise
        except HpcflowError as error:
            self._spent_s = PATIENCE_S  # other places would fail too
            self.unknown.append(f"when a job would start: {error.message}")
            return None
        finally:
            self._spent_s += self._clock.monotonic() - begin
        return found

    def _probe(self, spec: RunSpec, placement: Placement) -> Run:
        now = self._clock.now()
        return Run(
            run_id=make_run_id(spec.name, now, os.urandom(8)),
            user=self._settings.user,
            site=self._site.name,
            created_at=now,
            run_dir="/",
            working_dir="/",
            partition=placement.partition,
            spec=spec,
            provenance=Provenance(hpcflow_version="", python_version="", submit_host=""),
        )

    def _script(self, run: Run, placement: Placement) -> str:
        """Return a script with the sbatch options of the real one."""
        by_srun = placement.launcher is Launcher.SRUN
        options = directives(
            run,
            self._site,
            placement,
            attempt=1,
            tasks_per_node=placement.ranks_per_node if by_srun else 1,
        )
        return "".join(["#!/bin/sh\n", *(f"#SBATCH {option}\n" for option in options)])

    def _directory(self, run: Run, placement: Placement) -> Path | None:
        """Return the nearest existing parent of the real working directory: a site may refuse jobs
        from elsewhere."""
        try:
            place = run_dir_on(self._site, self._settings, placement, run.spec.project, run.run_id)
            return next((each for each in place.parents if each.is_dir()), None)
        except (HpcflowError, OSError):
            return None

    @cached_property
    def _scheduler(self) -> Scheduler | None:
        if self._site.scheduler is not SchedulerKind.SLURM:
            return None
        found = self._ask("what the cluster says", self._connect)
        other = other_cluster(self._site, found) if found is not None else None
        if other is not None:
            self.unknown.append(f"what the cluster says: Slurm on this machine is of {other}")
            return None
        return found

    @cached_property
    def standing(self) -> Standing | None:
        """Return the user's associations and shares; None if unknown."""
        scheduler = self._scheduler
        if scheduler is None:
            return None
        found = self._ask("accounts", lambda: scheduler.standing(self._settings.user))
        self.unknown += found.missing if found is not None else ()
        return found

    def _idle_now(self, job: WaitingJob, spec: RunSpec, placement: Placement) -> tuple[str, ...]:
        """Return idle nodes on which a job there could start now; none if unknown."""
        options = added_options(self._site, placement.options, spec.resources)
        if placement.constraint or spec.resources.exclude or _choose_nodes(options):
            return ()
        name = placement.slurm_partition
        partition = self.cluster.partition(name) if self.cluster and name is not None else None
        now = self._clock.now()
        return idle_now(
            job,
            self._nodes,
            self._other_jobs,
            self.cluster,
            obstacles(job, self.reservations, partition, now),
            now,
            empty_only=placement.options.whole_nodes
            or partition is None
            or partition.is_exclusive
            or partition.caps_cpus,
        )

    @cached_property
    def _other_jobs(self) -> ClusterQueue:
        """Return all users' jobs without the ignored ones. Jobs after an ignored one have no
        planned start, because Slurm will plan them again without it."""
        found: list[WaitingJob] = []
        is_after = False
        for each in self._queue.waiting:
            if each.job_id in self._ignored_jobs:
                is_after = True
            elif is_after:
                found.append(replace(each, expected_start=None, expected_nodes=()))
            else:
                found.append(each)
        return replace(self._queue, waiting=tuple(found))

    @cached_property
    def _queue(self) -> ClusterQueue:
        scheduler = self._scheduler
        found = None if scheduler is None else self._ask("other jobs", scheduler.cluster_queue)
        if found is None:
            return ClusterQueue()
        if self.cluster is not None and self.cluster.hides_jobs:
            self.unknown.append("other jobs: this site hides other users' jobs (PrivateData)")
        return found

    @cached_property
    def _nodes(self) -> Sequence[IdleNode]:
        scheduler = self._scheduler
        return (scheduler and self._ask("idle nodes", scheduler.idle_nodes)) or ()

    @cached_property
    def reservations(self) -> Sequence[Reservation]:
        scheduler = self._scheduler
        return (scheduler and self._ask("reservations", scheduler.reservations)) or ()

    @cached_property
    def cluster(self) -> ClusterInfo | None:
        scheduler = self._scheduler
        return None if scheduler is None else self._ask("partitions", scheduler.cluster_info)

    def _ask(self, what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        """Return the answer; None if there is none, which is noted in ``unknown``."""
        if self._is_silent(what):
            return None
        begin = self._clock.monotonic()
        try:
            return ask()
        except HpcflowError as error:
            self.unknown.append(f"{what}: {error.message}")
            return None
        finally:
            self._spent_s += self._clock.monotonic() - begin

    def _is_silent(self, what: str) -> bool:
        """Return whether the time for queries is used up; note it in ``unknown``."""
        if self._spent_s < PATIENCE_S:
            return False
        note = f"{what}: not queried, because Slurm takes too long"
        if not any(each.startswith(f"{what}:") for each in self.unknown):
            self.unknown.append(note)
        return True


def _choose_nodes(options: Sequence[str]) -> bool:
    """Return whether options that hpcflow does not set restrict the nodes of a job."""
    return any(each.partition("=")[0] in _OF_NODES for each in options)


def as_job(placement: Placement, standing: Standing | None) -> WaitingJob:
    """Return the job for this placement.

    Args:
        standing: has the default account and QOS.
    """
    name = placement.slurm_partition
    known = standing.association(placement.account, name) if standing is not None else None
    usage = usage_of(placement)
    gpus = sum(usage.gpus.values())
    # Every job uses at least 1 of each, even if the amount is unknown.
    wants = {"node": usage.nodes, "cpu": usage.cpus, "mem": 1, "billing": 1}
    if placement.mem_mb is not None:
        wants["mem"] = placement.mem_mb * placement.nodes
    if gpus:
        wants["gres/gpu"] = gpus
        if placement.gres_name:
            wants[f"gres/gpu:{placement.gres_name}"] = gpus
    return WaitingJob(
        job_id="",
        partitions=(name,) if name is not None else (),
        user=standing.user if standing is not None else None,
        account=placement.account or (known.account if known is not None else None),
        qos=placement.qos or default_qos(known),
        time_limit_min=placement.time_limit_min,
        nodes=usage.nodes,
        wants=wants,
    )


def too_large(job: WaitingJob, limits: Sequence[Limit]) -> str | None:
    """Return the limit that the job can never meet, as text; None if none is known."""
    for limit in limits:
        if limit.name.removesuffix("PerJob") not in _OF_ONE_JOB:
            continue
        if limit.resource == MINUTES:
            wants = job.time_limit_min or 0
        else:
            wants = job.wants.get(limit.resource, 0)
        if wants > limit.allowed:
            return excess_words(limit, wants)
    return None
