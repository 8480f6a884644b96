"""Parse Slurm's reasons that name a limit: ``AssocGrpGRES``, ``QOSMaxCpuPerUserLimit``. Pure.

They follow a pattern: level, scope, resource, time, subject. The spelling changed little from 20.11
to 25.11, and is not consistent. tests/schedulers/test_reasons.py checks that all are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hpcflow.sites.standing import JOBS, MINUTES, Limit

_NAME: Final = re.compile(
    r"(?P<level>Assoc|QOS)?(?P<scope>Grp|Max|Min)"
    r"(?P<what>Cpu|CPU|Memory|Mem|Node|GRES|Energy|License|BB|Billing|Unknown"
    r"|SubmitJobs?|Jobs|WallDuration|Wall)"
    r"(?P<minutes>RunMinutes|RunMins|Minutes)?"
    r"(?P<per>PerJob|PerNode|PerUser|PerAccount)?(?:Limit|NotSatisfied)?"
)

#: Resource in a reason -> resource in a limit, and its unit as text.
_RESOURCES: Final = {
    "Cpu": ("cpu", "CPUs"),
    "Memory": ("mem", "memory"),
    "Node": ("node", "nodes"),
    "GRES": ("gres/", "GPUs (or other GRES)"),
    "Energy": ("energy", "energy"),
    "License": ("license/", "licences"),
    "BB": ("bb/", "burst buffer space"),
    "Billing": ("billing", "billing units, by which the site weighs resources,"),
    "Unknown": ("", "a resource that Slurm does not name"),
}
_SAME: Final = {"CPU": "Cpu", "Mem": "Memory"}
_PER: Final = {"PerJob": "job", "PerNode": "node", "PerUser": "user", "PerAccount": "account"}


@dataclass(frozen=True)
class NamedLimit:
    """A limit that a reason names.

    Attributes:
        level: of an association (a user in an account, the account, its parents), or of the job's
            or the partition's QOS.
        name: as in :mod:`hpcflow.sites.standing`.
        resource: a prefix of several if it ends in ``/``; any resource if empty.
        words: the reason in plain words.
        passes: whether other jobs fill the limit, so that the job can start later. Otherwise the
            job itself requests too much or too little.
    """

    level: Literal["association", "QOS"]
    name: str
    resource: str
    words: str
    passes: bool

    def among(self, limits: Sequence[Limit]) -> list[Limit]:
        """Return the limits that the reason may mean; only the full ones, if any is full."""
        found = [
            limit
            for limit in limits
            if limit.name == self.name
            and (limit.resource == self.resource or self._is_family(limit.resource))
        ]
        full = [limit for limit in found if limit.is_full]
        return full or found

    def _is_family(self, resource: str) -> bool:
        is_open = not self.resource or self.resource.endswith("/")
        return is_open and resource.startswith(self.resource)


def named_limit(reason: str) -> NamedLimit | None:
    """Return the limit that a reason's code names; None if it names none."""
    match = _NAME.fullmatch(reason)
    if match is None:
        return None
    level: Literal["association", "QOS"] = "association" if match["level"] == "Assoc" else "QOS"
    scope, what, per = match["scope"], match["what"], match["per"] or ""
    if what in ("Jobs", "SubmitJob", "SubmitJobs"):
        return _of_jobs(level, scope, per, is_submit=what != "Jobs")
    if what in ("Wall", "WallDuration"):
        return _of_wall(level, scope)
    return _of_tres(level, scope, _SAME.get(what, what), per, match["minutes"] or "")


def _of_jobs(
    level: Literal["association", "QOS"], scope: str, per: str, *, is_submit: bool
) -> NamedLimit:
    name = f"{scope}{'SubmitJobs' if is_submit else 'Jobs'}{per}"
    which = "pending or running" if is_submit else "running"
    words = f"{_holder(level, scope, per)} as many jobs {which} as allowed"
    return NamedLimit(level, name, JOBS, words, True)


def _of_wall(level: Literal["association", "QOS"], scope: str) -> NamedLimit:
    if scope == "Grp":
        words = f"{_holder(level, scope, '')} used up the total run time of jobs"
        return NamedLimit(level, "GrpWall", MINUTES, words, True)
    of = "its account" if level == "association" else "its QOS"
    words = f"its time limit is longer than {of} allows"
    return NamedLimit(level, "MaxWall", MINUTES, words, False)


def _of_tres(
    level: Literal["association", "QOS"], scope: str, what: str, per: str, minutes: str
) -> NamedLimit:
    resource, unit = _RESOURCES[what]
    span = {"": "", "Minutes": "Mins"}.get(minutes, "RunMins")
    if scope == "Min":
        words = f"it requests less {unit} than its QOS requires"
        return NamedLimit(level, "MinTRESPerJob", resource, words, False)
    if scope == "Max" and per in ("PerJob", "PerNode"):
        name = f"MaxTRES{span}{per}"
        of = "its account" if level == "association" else "its QOS"
        amount = f"{unit} times its time limit" if span else unit
        words = f"it requests more ({amount}) than {of} allows a {_PER[per]}"
        return NamedLimit(level, name, resource, words, False)
    name = f"{scope}TRES{span}{per}"
    holder = _holder(level, scope, per)
    words = {
        "": f"{holder} as {_much(what)} {unit} in use as allowed",
        "Mins": f"{holder} used up the minutes of {unit}",
        "RunMins": f"{holder} running jobs that need, in their remaining time, as many minutes of"
        f" {unit} as allowed",
    }[span]
    return NamedLimit(level, name, resource, words, True)


def _much(what: str) -> str:
    return "much" if what in ("Memory", "Energy", "BB") else "many"


def _holder(level: Literal["association", "QOS"], scope: str, per: str) -> str:
    """Return the subject that fills the limit, with the verb."""
    if per == "PerUser":
        return "in this QOS you have"
    if per == "PerAccount":
        return "in this QOS your account has"
    if level == "QOS":
        return "all jobs of this QOS together have"
    return "your account, or one above it, has" if scope == "Grp" else "in this account you have"
