"""Parse Slurm's reasons that name a limit: ``AssocGrpGRES``, ``QOSMaxCpuPerUserLimit``. Pure.

They follow a pattern, so they are read and not listed: whose limit, for whom, of what, over which
time. How Slurm spells them has changed little from 20.11 to 25.11 and is not consistent in itself;
that all of them are read is held by tests/schedulers/test_reasons.py.
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

#: A resource in a reason -> in a limit, and the unit in words.
_RESOURCES: Final = {
    "Cpu": ("cpu", "CPUs"),
    "Memory": ("mem", "memory"),
    "Node": ("node", "nodes"),
    "GRES": ("gres/", "GPUs (or what else Slurm counts as GRES)"),
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
        level: whether it is of an association (a user in an account, the account, those above it)
            or of a QOS, be it the job's or the partition's.
        name: of the limit, as in :mod:`hpcflow.sites.standing`.
        resource: of the limit; one that ends in ``/`` is the beginning of several, and an empty one
            is any.
        words: what it says of the job.
        passes: whether it is the use by other jobs that fills it, so that it passes; else this very
            job asks for more, or less, than it may.
    """

    level: Literal["association", "QOS"]
    name: str
    resource: str
    words: str
    passes: bool

    def among(self, limits: Sequence[Limit]) -> list[Limit]:
        """Those of ``limits`` that it may be; those that are full, where any is."""
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
    """The limit that a reason's code names; None when it names none."""
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
    which = "that wait or run" if is_submit else "that run"
    words = f"{_who(level, scope, per)} as many jobs {which} as may be"
    return NamedLimit(level, name, JOBS, words, True)


def _of_wall(level: Literal["association", "QOS"], scope: str) -> NamedLimit:
    if scope == "Grp":
        words = f"{_who(level, scope, '')} used up the time that jobs may run in all"
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
        words = f"it asks for less {unit} than its QOS wants of a job"
        return NamedLimit(level, "MinTRESPerJob", resource, words, False)
    if scope == "Max" and per in ("PerJob", "PerNode"):
        name = f"MaxTRES{span}{per}"
        of = "its account" if level == "association" else "its QOS"
        amount = f"{unit} times its time limit" if span else unit
        words = f"it asks for more ({amount}) than {of} allows a {_PER[per]}"
        return NamedLimit(level, name, resource, words, False)
    name = f"{scope}TRES{span}{per}"
    who = _who(level, scope, per)
    words = {
        "": f"{who} as {_much(what)} {unit} in use as may be",
        "Mins": f"{who} used up the minutes of {unit}",
        "RunMins": f"{who} running jobs that need, in the time they have left, as many minutes of"
        f" {unit} as may be",
    }[span]
    return NamedLimit(level, name, resource, words, True)


def _much(what: str) -> str:
    return "much" if what in ("Memory", "Energy", "BB") else "many"


def _who(level: Literal["association", "QOS"], scope: str, per: str) -> str:
    """Who it is that uses it up, with the verb."""
    if per == "PerUser":
        return "in this QOS you have"
    if per == "PerAccount":
        return "in this QOS your account has"
    if level == "QOS":
        return "all jobs of this QOS together have"
    return "your account, or one above it, has" if scope == "Grp" else "in this account you have"
