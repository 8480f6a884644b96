"""Query a user's limits and the jobs ahead of a job. Each query may fail alone.

parse_standing.py, parse_waiting.py and parse_scontrol.py parse the answers.
"""

from __future__ import annotations

import logging
import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hpcflow.errors import SchedulerUnavailable
from hpcflow.schedulers.base import SubmitRequest
from hpcflow.schedulers.slurm import job_ids as ids
from hpcflow.schedulers.slurm import parse_waiting
from hpcflow.schedulers.slurm.parse_assoc_mgr import parse_assoc_mgr
from hpcflow.schedulers.slurm.parse_scontrol import parse_nodes, parse_reservations
from hpcflow.schedulers.slurm.parse_standing import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
    SHARE_FIELDS,
    SlurmOutputs,
    standing,
)
from hpcflow.schedulers.slurm.run_command import ask, run_query, unavailable
from hpcflow.schedulers.slurm.submit import refusal_from
from hpcflow.schedulers.waiting import ClusterQueue, IdleNode, PredictedStart, WaitingJob
from hpcflow.sites.standing import Reservation, Standing

_log = logging.getLogger(__name__)

#: sacctmgr and sshare query a database that may be far away.
_DATABASE_TIMEOUT_S: Final = 10.0
_TEST_TIMEOUT_S: Final = 10.0
#: sbatch prints this only after it submitted a job.
_SENT: Final = re.compile(r"^Submitted batch job ", re.MULTILINE)


def questions(user: str, accounts: Sequence[str]) -> dict[str, list[str]]:
    """Return topic -> command line of every query.

    Args:
        accounts: of the user; without any, sshare shows the user alone.
    """
    sacctmgr = ["sacctmgr", "--noheader", "--parsable2", "show"]
    sshare = ["sshare", "--noheader", "--parsable2", f"--format={','.join(SHARE_FIELDS)}"]
    whose = ["--users", user, *(["--accounts", ",".join(accounts)] if accounts else [])]
    return {
        "associations": [
            *(*sacctmgr, "associations", f"format={','.join(ASSOCIATION_FIELDS)}"),
            f"user={user}",
        ],
        "qos": [*sacctmgr, "qos", f"format={','.join(QOS_FIELDS)}"],
        "usage": ["scontrol", "show", "assoc_mgr", f"users={user}", "flags=assoc,qos"],
        "shares": [*sshare, *whose],
        "reservations": ["scontrol", "show", "reservation", "--oneliner"],
        "everybody": [
            *("squeue", "--local", "--all", "--states=PENDING,RUNNING", "--noheader", "--Format"),
            parse_waiting.WAITING_FORMAT,
        ],
        "nodes": ["scontrol", "--local", "show", "node", "--oneliner", "--all"],
        # All jobs, because sprio fails if one of the given jobs has started.
        "factors": ["sprio", "--noheader", "--format", parse_waiting.FACTORS_FORMAT],
    }


def ask_standing(user: str, cluster: str | None) -> Standing | None:
    """Return the limits and shares of ``user``; None without any answer."""
    missing: list[str] = []

    def tried(what: str, accounts: Sequence[str] = ()) -> str | None:
        if what == "qos" and missing:  # the same database, whose timeout is long
            missing.append(f"{what}: not asked, because the database does not answer")
            return None
        try:
            return ask(questions(user, accounts)[what], timeout_s=_DATABASE_TIMEOUT_S)
        except SchedulerUnavailable as error:
            _log.debug("%s of %s: %s", what, user, error)
            missing.append(f"{what}: {error.message}")
            return None

    associations, qos, book = tried("associations"), tried("qos"), tried("usage")
    outputs = SlurmOutputs(associations, qos, None, None if book is None else parse_assoc_mgr(book))
    uid = _uid(user)
    found = standing(outputs, user=user, uid=uid, cluster=cluster)
    shares = tried("shares", sorted({each.account for each in found.associations}))
    if associations is None and book is None and shares is None:
        return None
    outputs = replace(outputs, shares=shares)
    return standing(outputs, user=user, uid=uid, cluster=cluster, missing=missing)


def ask_reservations() -> list[Reservation]:
    """Return all reservations, including past ones."""
    return parse_reservations(ask(questions("", ())["reservations"]))


def ask_waiting(job_ids: Sequence[str]) -> list[WaitingJob]:
    wanted = [job_id for job_id in job_ids if ids.is_job_id(job_id)]
    if not wanted:
        return []
    asked = questions("", ())
    squeue = ask(asked["everybody"])
    try:
        sprio = ask(asked["factors"])
    except SchedulerUnavailable as error:
        _log.debug("priorities are unknown: %s", error)
        sprio = ""
    return parse_waiting.parse_waiting(squeue, sprio, wanted)


def ask_cluster_queue() -> ClusterQueue:
    """Return the pending and running jobs of all users."""
    return parse_waiting.parse_cluster_queue(ask(questions("", ())["everybody"]))


def ask_idle_nodes() -> list[IdleNode]:
    """Return the idle resources of each node that accepts jobs."""
    return parse_nodes(ask(questions("", ())["nodes"]))


def ask_predicted_start(
    request: SubmitRequest,
    find: Callable[[str], Sequence[str]],
    cancel: Callable[[Sequence[str]], None],
) -> PredictedStart | None:
    """Return when the job would start according to ``sbatch --test-only``.

    A wrapper around sbatch may drop ``--test-only``, and so submit a job. hpcflow finds that job by
    its name, because a wrapper may print the id of another job, and cancels it.

    Args:
        find: returns the ids of the pending and running jobs of a name.
    """
    argv = ["sbatch", "--test-only", str(request.script)]
    answer = run_query(argv, timeout_s=_TEST_TIMEOUT_S, cwd=request.directory)
    if answer.exit_code is None or _SENT.search(answer.stdout):
        if sent := find(request.job_name):
            cancel(sent)
            raise SchedulerUnavailable(
                f"the sbatch of this cluster ignores --test-only and submitted job "
                f"{', '.join(sent)}, which was cancelled",
                next_action="look for a wrapper: type -a sbatch",
            )
        raise unavailable(answer)
    if answer.exit_code != 0:
        if "--test-only" in answer.stderr:  # a wrapper without this option
            raise unavailable(answer)
        raise refusal_from(answer)
    return parse_waiting.parse_start(answer.stderr + answer.stdout)


def _uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
