"""What the live cluster says of a run that is not sent: limits, standing, and when it would start.

Everything is asked once, and only when it is needed. What cannot be asked is None, and is told in
``unknown``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError, SubmissionDelayed, SubmissionRefused
from hpcflow.launch.price import usage_of
from hpcflow.model.execution import Launcher
from hpcflow.model.ids import job_name, make_run_id
from hpcflow.model.run import Provenance, Run
from hpcflow.model.spec import RunSpec
from hpcflow.rendering.directives import directives
from hpcflow.schedulers.base import Scheduler, SubmitRequest
from hpcflow.settings import Settings
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.placement import Placement
from hpcflow.sites.schema import SchedulerKind, Site
from hpcflow.sites.standing import JOBS, MINUTES, Limit, Standing

_Answer = TypeVar("_Answer")


class Forecast:
    """The answers of one site's scheduler.

    Args:
        connect: the scheduler, when it is first needed.
    """

    def __init__(
        self, site: Site, connect: Callable[[], Scheduler], *, settings: Settings, clock: Clock
    ) -> None:
        self._site, self._connect = site, connect
        self._settings, self._clock = settings, clock
        self.unknown: list[str] = []
        self._is_silent = False

    def accounts(self) -> list[str]:
        """Accounts that this user may charge; empty where nobody says."""
        found = self._standing.associations if self._standing else ()
        return list(dict.fromkeys(each.account for each in found))

    def account(self, placement: Placement) -> str | None:
        """The account that a job there is charged to; None where nobody says."""
        if placement.account is not None or self._standing is None:
            return placement.account
        default = self._standing.association(None, placement.slurm_partition)
        return default.account if default else None

    def fair_share(self, placement: Placement) -> float | None:
        """The user's fair-share factor in the account of a job there, from 0 to 1."""
        account = self.account(placement)
        if account is None or self._standing is None:
            return None
        share = self._standing.share(account)
        return share.factor if share else None

    def limit(self, placement: Placement) -> str | None:
        """What keeps a job of this size from ever starting there; None if nothing is known to."""
        name = placement.slurm_partition
        if self._cluster is not None and name is not None:
            live = self._cluster.partition(name)
            if live is None:
                return f"the cluster has no partition {name}"
            if not live.is_up:
                return f"partition {name} takes no jobs: it is not up"
        said = (_too_much(limit, placement) for limit in self._limits(placement))
        return next((each for each in said if each is not None), None)

    def starts_at(self, spec: RunSpec, placement: Placement) -> datetime | None:
        """When a job there would start that is sent now; None where nobody can say.

        Raises:
            SubmissionRefused: the scheduler would refuse it.
        """
        scheduler = self._scheduler
        if scheduler is None or self._is_silent:
            return None
        name = job_name(make_run_id(spec.name, self._clock.now(), os.urandom(8)), 1)
        try:
            with TemporaryDirectory(prefix="hpcflow-") as folder:
                script = Path(folder) / "job.sbatch"
                script.write_text(self._script(spec, placement))
                found = scheduler.predicted_start(SubmitRequest(script, Path(folder), name))
        except SubmissionRefused:
            raise
        except HpcflowError as error:
            # A limit that is full for now says nothing of another place.
            self._is_silent = not isinstance(error, SubmissionDelayed)
            self._leave_out("when a job would start", error)
            return None
        return found.starts_at if found else None

    def _script(self, spec: RunSpec, placement: Placement) -> str:
        """What decides about the start: the lines that the real script would have."""
        now = self._clock.now()
        run = Run(
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
        by_srun = placement.launcher is Launcher.SRUN
        options = directives(
            run,
            self._site,
            placement,
            attempt=1,
            tasks_per_node=placement.ranks_per_node if by_srun else 1,
        )
        return "".join(["#!/bin/sh\n", *(f"#SBATCH {option}\n" for option in options)])

    @cached_property
    def _scheduler(self) -> Scheduler | None:
        if self._site.scheduler is not SchedulerKind.SLURM:
            return None
        return self._told("what the cluster says", self._connect)

    @cached_property
    def _standing(self) -> Standing | None:
        scheduler = self._scheduler
        if scheduler is None:
            return None
        found = self._told("accounts", lambda: scheduler.standing(self._settings.user))
        self.unknown += found.missing if found is not None else ()
        return found

    @cached_property
    def _cluster(self) -> ClusterInfo | None:
        scheduler = self._scheduler
        return None if scheduler is None else self._told("partitions", scheduler.cluster_info)

    def _told(self, what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        """The answer; None where there is none, which is noted."""
        try:
            return ask()
        except HpcflowError as error:
            self._leave_out(what, error)
            return None

    def _limits(self, placement: Placement) -> Iterator[Limit]:
        standing = self._standing
        if standing is None:
            return
        association = standing.association(placement.account, placement.slurm_partition)
        if association is not None:
            yield from association.limits
        default = association.default_qos if association is not None else None
        qos = standing.qos_named(placement.qos or default)
        if qos is not None:
            yield from qos.limits

    def _leave_out(self, what: str, error: HpcflowError) -> None:
        self.unknown.append(f"{what}: {error.message}")


def _too_much(limit: Limit, placement: Placement) -> str | None:
    """What is to be said where the job by itself asks for more than a limit allows."""
    if limit.name.startswith("Min") or "Mins" in limit.name or limit.resource == JOBS:
        return None
    if limit.name.endswith("PerNode"):
        return None
    asked = _asked(placement).get(limit.resource)
    if asked is None or asked <= limit.allowed:
        return None
    whose = f" of {limit.holder}" if limit.holder else ""
    return f"{asked} {limit.resource}, and {limit.name}{whose} allows {limit.allowed}"


def _asked(placement: Placement) -> dict[str, int]:
    """What a job asks for, by Slurm's names of resources."""
    usage = usage_of(placement)
    gpus = sum(usage.gpus.values())
    asked = {"node": usage.nodes, "cpu": usage.cpus}
    if placement.mem_mb is not None:
        asked["mem"] = placement.mem_mb * placement.nodes
    if gpus:
        asked["gres/gpu"] = gpus
        if placement.gres_name:
            asked[f"gres/gpu:{placement.gres_name}"] = gpus
    if placement.time_limit_min is not None:
        asked[MINUTES] = placement.time_limit_min
    return asked
