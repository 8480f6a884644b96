"""Interpret sbatch's answer: the job exists, it does not, or it is unknown. Pure.

The order of the checks matters. A message of doubt outweighs all others, because a second job
cannot be undone. The texts are from slurm_errno.c, Slurm 20.11 to 25.11. If versions differ, the
tables have the common part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hpcflow.errors import (
    SchedulerError,
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionRefused,
    Where,
)
from hpcflow.schedulers.base import JobRef
from hpcflow.schedulers.slurm.run_command import Answer

#: The output with ``--parsable``, and that of a wrapper that drops this option.
_JOB_ID_LINES: Final = (
    re.compile(r"(?P<job_id>[1-9]\d*)(?:;(?P<cluster>[\w.-]+))?", re.ASCII),
    re.compile(
        r"Submitted batch job (?P<job_id>[1-9]\d*)(?: on cluster (?P<cluster>[\w.-]+))?", re.ASCII
    ),
)

#: sbatch's text after a refusal or a failed connection; and that of ``--test-only``.
_VERDICT: Final = "Batch job submission failed:"
_TEST_VERDICT: Final = "allocation failure:"

_LOOK_UP: Final = "hpcflow looks up the job's name before it submits again"
_RESUME_LATER: Final = "try again later: `hpcflow resume` submits the same run"


@dataclass(frozen=True)
class Refusal:
    """One refusal: Slurm's text, and what to do.

    Attributes:
        text: part of Slurm's message.
        key: the spec key at fault, if any.
        advice: what to type or do next.
    """

    text: str
    key: str | None
    advice: str


_SEE_SITE: Final = "see the partitions and their limits with `hpcflow site show`"
_SEE_ACCOUNTS: Final = (
    "see yours with `sacctmgr show assoc user=$USER format=account,partition,qos`"
)
_SEE_FEATURES: Final = 'see the features with `sinfo -o "%P %f"`, or `hpcflow site show`'
_SEE_NODES: Final = "see the nodes with `hpcflow site show`, and request less"
_ASK_STAFF: Final = "ask the staff of the cluster, and show them this message"

#: No job exists, and a resubmission would fail, too. The first match counts, so slurmctld's reasons
#: come before the general verdicts.
REFUSALS: Final = (
    # Reasons on a separate line.
    Refusal("Memory specification can not be satisfied", "resources.mem", _SEE_NODES),
    Refusal("CPU count per node can not be satisfied", "resources.cpus_per_task", _SEE_NODES),
    # Verdicts.
    Refusal("Invalid account or account/partition", "resources.account", _SEE_ACCOUNTS),
    Refusal("Invalid or unknown association", "resources.account", _SEE_ACCOUNTS),
    Refusal("account has breached requested QOS usage", "resources.account", _SEE_ACCOUNTS),
    Refusal("Invalid partition name specified", "resources.partition", _SEE_SITE),
    Refusal("No partition specified or system default", "resources.partition", _SEE_SITE),
    Refusal("User's group not permitted to use this", "resources.partition", _SEE_SITE),
    Refusal("Requested partition configuration not available", "resources.partition", _SEE_NODES),
    Refusal("Invalid qos specification", "resources.qos", _SEE_ACCOUNTS),
    Refusal("Invalid QOS specification", "resources.qos", _SEE_ACCOUNTS),
    Refusal("Requested time limit is invalid", "resources.time_limit", _SEE_SITE),
    Refusal("Time limit specification required", "resources.time_limit", _SEE_SITE),
    Refusal("Invalid time specified", "resources.time_limit", _SEE_SITE),
    Refusal("Invalid time-min specification", "resources.time_limit", _SEE_SITE),
    Refusal("Node count specification invalid", "resources.nodes", _SEE_NODES),
    Refusal("Job size specification needs to be provided", "resources.nodes", _SEE_SITE),
    Refusal("Requested topology configuration is not available", "resources.nodes", _SEE_NODES),
    Refusal("More processors requested than permitted", "resources.cpus_per_task", _SEE_NODES),
    Refusal("CPU count specification invalid", "resources.cpus_per_task", _SEE_NODES),
    Refusal("Cannot request more threads per core", "resources.cpus_per_task", _SEE_NODES),
    Refusal("Task count specification invalid", "resources.tasks_per_node", _SEE_NODES),
    Refusal("Memory required by task is not available", "resources.mem", _SEE_NODES),
    Refusal("Invalid generic resource (gres)", "resources.gpus_per_node", _SEE_NODES),
    Refusal("Duplicate generic resource (gres)", "resources.gpus_per_node", _SEE_SITE),
    Refusal("Invalid GRES specification", "resources.gpu_type", _SEE_SITE),
    Refusal("Requested GRES option unsupported", "resources.gpus_per_node", _SEE_SITE),
    Refusal("Invalid Trackable RESource", "resources.gpus_per_node", _SEE_SITE),
    Refusal("RestrictedCoresPerGPU", "resources.cpus_per_task", _SEE_NODES),
    Refusal("Invalid feature specification", "resources.constraint", _SEE_FEATURES),
    Refusal("Invalid node name specified", "resources.exclude", "see the names with `sinfo -N`"),
    Refusal("Requested nodes not in this partition", "resources.exclude", "see `sinfo -N`"),
    Refusal("Requested node configuration is not available", "resources", _SEE_NODES),
    Refusal("Access denied to requested reservation", None, _ASK_STAFF),
    Refusal("Requested reservation is invalid", None, _ASK_STAFF),
    Refusal("Invalid license specification", None, _ASK_STAFF),
    Refusal("Invalid wckey specification", None, _ASK_STAFF),
    Refusal("Invalid job array specification", None, _ASK_STAFF),
    Refusal("Burst Buffer", None, _ASK_STAFF),
    Refusal("Job dependency problem", None, _ASK_STAFF),
    Refusal("Pathname of a file, directory or other parameter too long", None, "use shorter paths"),
    Refusal("Access/permission denied", None, _ASK_STAFF),
    Refusal("Invalid user id", None, _ASK_STAFF),
    Refusal("Invalid user ID", None, _ASK_STAFF),
    Refusal("Unable to resolve user ID", None, _ASK_STAFF),
    Refusal("Invalid group id", None, _ASK_STAFF),
    Refusal("Invalid group ID", None, _ASK_STAFF),
    Refusal("Requested operation not supported", None, _ASK_STAFF),
    Refusal("Only batch jobs are accepted", None, _ASK_STAFF),
    Refusal("Lua ", None, _ASK_STAFF),
)

#: No job exists. Slurm may accept the same request later.
DELAYS: Final = (
    "Unable to create job record, try again",  # MaxJobCount
    "Slurm temporarily unable to accept job",
    "System submissions disabled",
    "Requested operation is presently disabled",
    "Required partition not available (inactive or drain)",
    "Partition in DOWN state",
    "Required node not available",
    "Requested nodes are busy",
    "Required ports are in use",
    "I/O error writing script/environment to file",  # the controller's disk is full
    "Requested reservation not usable now",
    "Licenses currently unavailable",
)

#: No job exists: the request reached no controller that could accept it.
UNAVAILABLE: Final = (
    "Unable to contact slurm controller (connect failure)",
    "Communication connection failure",
    "Rate limit exceeded",
    "standby mode",
    "Could not establish a configuration source",
    "Unable to process configuration file",
    "Munge encode failed",
    "Incompatible versions of client and server code",
    "Unable to connect to database",
)

#: No job exists: sbatch could not start, or could not read the job script. Usual causes are
#: temporary: a Slurm upgrade on this host or a file system error.
NOT_STARTED: Final = (
    "Can't find plugin",
    "Couldn't find the specified plugin",
    "Couldn't load specified plugin",
    "Failed to load plugin",
    "Failed to initialize plugin stack",
    "Unable to open file",
)

#: The request may have arrived, and its answer may be lost.
DOUBTS: Final = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unable to contact slurm controller (send failure)",
    "Unable to contact slurm controller (receive failure)",
    "Unable to contact slurm controller (shutdown failure)",
    "Message send failure",
    "Message receive failure",
    "Communication shutdown failure",
    "Unexpected message received",
    "Header lengths are longer than data received",
    "Insane message length",
    "Connection reset",
    "Connection timed out",
    "Broken pipe",
    # Faults of this machine and its file systems, before or after the request is sent.
    "Input/output error",
    "Stale file handle",
    "Too many open files",
    "Cannot allocate memory",
    "Resource temporarily unavailable",
)

#: The verdict for every limit of accounting. An earlier line names the limit.
POLICY: Final = "Job violates accounting/QOS policy"

#: AssocMaxSubmitJobLimit, QOSMaxSubmitJobPerUserLimit, AssocGrpSubmitJobsLimit …: limits on the
#: number of jobs, which are temporary. The job itself exceeds any other limit.
COUNT_LIMIT: Final = re.compile(r"\b(?:Assoc|QOS)(?:Grp|Max)(?:Submit)?Jobs?(?:Per|Limit)")
JOB_LIMIT: Final = re.compile(r"\b(?:Assoc|QOS)(?:Grp|Max|Min)\w+")

#: Part of a limit's name -> the spec key.
LIMITED_RESOURCES: Final = (
    ("Wall", "resources.time_limit"),
    ("GRES", "resources.gpus_per_node"),
    ("Gres", "resources.gpus_per_node"),
    ("Cpu", "resources.cpus_per_task"),
    ("CPU", "resources.cpus_per_task"),
    ("Mem", "resources.mem"),
    ("Node", "resources.nodes"),  # last, because many names contain PerNode
)


def job_from(answer: Answer) -> JobRef:
    """Return the job in the answer of ``sbatch --parsable``.

    Raises:
        SubmissionRefused, SubmissionDelayed, SchedulerUnavailable: no job exists.
        SubmissionInDoubt: a job may exist.
    """
    jobs = _job_lines(answer.stdout)
    if answer.exit_code == 0 and len(jobs) == 1:
        return jobs[0]
    raise _error(answer, names_a_job=bool(jobs))


def refusal_from(answer: Answer) -> SchedulerError:
    """Return the error of ``sbatch --test-only``. It creates no job, so nothing is in doubt."""
    text = answer.stderr
    if any(message in text for message in (*UNAVAILABLE, *DOUBTS, *NOT_STARTED)):
        return _unavailable(answer, "try again later")
    if POLICY in text:
        return _limit(answer)
    if any(message in text for message in DELAYS):
        return SubmissionDelayed(
            f"Slurm does not accept the job now: {_errors_of(answer)}",
            next_action="try again later",
        )
    known = (refusal for refusal in REFUSALS if refusal.text in text)
    return _refused(answer, next(known, Refusal("", None, "correct the error of sbatch")))


def _job_lines(stdout: str) -> list[JobRef]:
    """Return the job of each line that names one. Some sites print a banner around it."""
    matches = (
        pattern.fullmatch(line.strip()) for line in stdout.splitlines() for pattern in _JOB_ID_LINES
    )
    return [JobRef(match["job_id"], match["cluster"]) for match in matches if match]


def _error(answer: Answer, *, names_a_job: bool) -> SchedulerError:
    text = answer.stderr
    if (
        answer.exit_code is None
        or answer.exit_code <= 0
        or names_a_job
        or any(doubt in text for doubt in DOUBTS)
    ):
        return _in_doubt(answer)
    if any(message in text for message in UNAVAILABLE):
        return _unavailable(answer, _RESUME_LATER)
    if POLICY in text:
        return _limit(answer)
    if any(message in text for message in DELAYS):
        return SubmissionDelayed(
            f"Slurm does not accept the job now: {_errors_of(answer)}", next_action=_RESUME_LATER
        )
    for refusal in REFUSALS:
        if refusal.text in text:
            return _refused(answer, refusal)
    return _unknown(answer)


def _unavailable(answer: Answer, next_action: str) -> SchedulerUnavailable:
    is_started = not any(message in answer.stderr for message in NOT_STARTED)
    what = "Slurm does not accept the job now" if is_started else "sbatch could not start"
    return SchedulerUnavailable(f"{what}: {_errors_of(answer)}", next_action=next_action)


def _in_doubt(answer: Answer) -> SubmissionInDoubt:
    stdout = "" if answer.exit_code is None else answer.stdout.strip()[:200]
    detail = f"{_errors_of(answer)}; it printed {stdout!r}" if stdout else _errors_of(answer)
    return SubmissionInDoubt(f"the job may or may not exist: {detail}", next_action=_LOOK_UP)


def _limit(answer: Answer) -> SchedulerError:
    """Return the error: delayed for too many jobs, refused for too large a job."""
    text = answer.stderr
    limit = JOB_LIMIT.search(text)
    if COUNT_LIMIT.search(text) or limit is None:
        return SubmissionDelayed(
            f"a limit on your jobs is full: {_errors_of(answer)}", next_action=_RESUME_LATER
        )
    key = next((key for part, key in LIMITED_RESOURCES if part in limit[0]), "resources")
    return _refused(answer, Refusal(limit[0], key, "ask for less, or use another qos or partition"))


def _errors_of(answer: Answer) -> str:
    return answer.complaint.replace(f"{_VERDICT} ", "").replace(f"{_TEST_VERDICT} ", "")


def _refused(answer: Answer, refusal: Refusal) -> SubmissionRefused:
    return SubmissionRefused(
        f"Slurm refused the job: {_errors_of(answer)}",
        where=Where(key=refusal.key) if refusal.key else None,
        next_action=refusal.advice,
    )


def _unknown(answer: Answer) -> SchedulerError:
    """Return the error for an unknown message, of a site's submit plugin or of sbatch itself.

    sbatch prints its verdict only after it contacted the controller. Without a verdict it submitted
    nothing, provided that all lines are its own: a wrapper prints others if its sbatch was killed.
    With an unknown verdict, no job exists if the controller gave a reason.
    """
    if _VERDICT not in answer.stderr:
        lines = [line for line in answer.stderr.splitlines() if line.strip()]
        if not lines or not all(line.startswith(("sbatch: ", 'Try "sbatch ')) for line in lines):
            return _in_doubt(answer)
        if any(message in answer.stderr for message in NOT_STARTED):
            return _unavailable(answer, _RESUME_LATER)
        return _refused(answer, Refusal("", None, "correct the error of sbatch"))
    reasons = [line for line in answer.stderr.splitlines() if _VERDICT not in line]
    if reasons and f"{_VERDICT} Unspecified error" in answer.stderr:
        return _refused(answer, Refusal("", None, "this is a rule of the site; see its pages"))
    return _in_doubt(answer)
