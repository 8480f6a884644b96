"""Interpret sbatch's answer: the job exists, it does not, or it is unknown. Pure.

The order matters. A word of doubt outweighs everything else that sbatch says, for sending a job
twice is the one mistake that cannot be undone. Messages are in refusals.py.
"""

from __future__ import annotations

import re
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
from hpcflow.schedulers.slurm.refusals import (
    COUNT_LIMIT,
    DELAYS,
    DOUBTS,
    JOB_LIMIT,
    LIMITED_RESOURCES,
    NOT_STARTED,
    POLICY,
    REFUSALS,
    UNAVAILABLE,
    Refusal,
)
from hpcflow.schedulers.slurm.run_command import Answer

#: ``--parsable``, and what a wrapper around sbatch that drops this option prints.
_JOB_ID_LINES: Final = (
    re.compile(r"(?P<job_id>[1-9]\d*)(?:;(?P<cluster>[\w.-]+))?", re.ASCII),
    re.compile(
        r"Submitted batch job (?P<job_id>[1-9]\d*)(?: on cluster (?P<cluster>[\w.-]+))?", re.ASCII
    ),
)

#: sbatch's own words after the controller, or the way to it, said no; and of ``--test-only``.
_VERDICT: Final = "Batch job submission failed:"
_TEST_VERDICT: Final = "allocation failure:"

_LOOK_UP: Final = "hpcflow looks the job's name up before it sends anything again"
_LATER: Final = "try again later: `hpcflow resume` sends the same run"


def job_from(answer: Answer) -> JobRef:
    """The job that ``answer`` of ``sbatch --parsable`` speaks of.

    Raises:
        SubmissionRefused, SubmissionDelayed, SchedulerUnavailable: no job exists.
        SubmissionInDoubt: a job may exist.
    """
    jobs = _job_lines(answer.stdout)
    if answer.exit_code == 0 and len(jobs) == 1:
        return jobs[0]
    raise _error(answer, said_a_job=bool(jobs))


def refusal_from(answer: Answer) -> SchedulerError:
    """Why ``sbatch --test-only`` said no. Nothing was sent, so there are no doubts."""
    text = answer.stderr
    if any(message in text for message in (*UNAVAILABLE, *DOUBTS, *NOT_STARTED)):
        return _unavailable(answer, "try again later")
    if POLICY in text:
        return _limit(answer)
    if any(message in text for message in DELAYS):
        return SubmissionDelayed(
            f"Slurm does not take the job now: {_said(answer)}", next_action="try again later"
        )
    known = (refusal for refusal in REFUSALS if refusal.text in text)
    return _refused(answer, next(known, Refusal("", None, "correct what sbatch complains of")))


def _job_lines(stdout: str) -> list[JobRef]:
    """Every line that names a job. Some sites print a banner around it."""
    matches = (
        pattern.fullmatch(line.strip()) for line in stdout.splitlines() for pattern in _JOB_ID_LINES
    )
    return [JobRef(match["job_id"], match["cluster"]) for match in matches if match]


def _error(answer: Answer, *, said_a_job: bool) -> SchedulerError:
    text = answer.stderr
    if (
        answer.exit_code is None
        or answer.exit_code <= 0
        or said_a_job
        or any(doubt in text for doubt in DOUBTS)
    ):
        return _in_doubt(answer)
    if any(message in text for message in UNAVAILABLE):
        return _unavailable(answer, _LATER)
    if POLICY in text:
        return _limit(answer)
    if any(message in text for message in DELAYS):
        return SubmissionDelayed(
            f"Slurm does not take the job now: {_said(answer)}", next_action=_LATER
        )
    for refusal in REFUSALS:
        if refusal.text in text:
            return _refused(answer, refusal)
    return _unknown(answer)


def _unavailable(answer: Answer, next_action: str) -> SchedulerUnavailable:
    is_started = not any(message in answer.stderr for message in NOT_STARTED)
    what = "Slurm does not take the job now" if is_started else "sbatch could not start"
    return SchedulerUnavailable(f"{what}: {_said(answer)}", next_action=next_action)


def _in_doubt(answer: Answer) -> SubmissionInDoubt:
    said = "" if answer.exit_code is None else answer.stdout.strip()[:200]
    detail = f"{_said(answer)}; it printed {said!r}" if said else _said(answer)
    return SubmissionInDoubt(f"the job may or may not exist: {detail}", next_action=_LOOK_UP)


def _limit(answer: Answer) -> SchedulerError:
    """Too many jobs, which passes; or too large a job, which does not."""
    text = answer.stderr
    limit = JOB_LIMIT.search(text)
    if COUNT_LIMIT.search(text) or limit is None:
        return SubmissionDelayed(
            f"a limit on your jobs is full: {_said(answer)}", next_action=_LATER
        )
    key = next((key for part, key in LIMITED_RESOURCES if part in limit[0]), "resources")
    return _refused(answer, Refusal(limit[0], key, "ask for less, or for another qos or partition"))


def _said(answer: Answer) -> str:
    return answer.complaint.replace(f"{_VERDICT} ", "").replace(f"{_TEST_VERDICT} ", "")


def _refused(answer: Answer, refusal: Refusal) -> SubmissionRefused:
    return SubmissionRefused(
        f"Slurm refused the job: {_said(answer)}",
        where=Where(key=refusal.key) if refusal.key else None,
        next_action=refusal.advice,
    )


def _unknown(answer: Answer) -> SchedulerError:
    """A message that is in no table: a site's own submit plugin, or a complaint of sbatch itself.

    sbatch speaks its verdict only after it talked with the controller. Without one it never sent
    anything, if all that was said is its own: a wrapper whose sbatch was killed complains as well.
    With a verdict that we do not know, the job does not exist if the controller gave a reason.
    """
    if _VERDICT not in answer.stderr:
        lines = [line for line in answer.stderr.splitlines() if line.strip()]
        if not lines or not all(line.startswith(("sbatch: ", 'Try "sbatch ')) for line in lines):
            return _in_doubt(answer)
        if any(message in answer.stderr for message in NOT_STARTED):
            return _unavailable(answer, _LATER)
        return _refused(answer, Refusal("", None, "correct what sbatch complains of"))
    reasons = [line for line in answer.stderr.splitlines() if _VERDICT not in line]
    if reasons and f"{_VERDICT} Unspecified error" in answer.stderr:
        return _refused(answer, Refusal("", None, "this is a rule of the site; see its own pages"))
    return _in_doubt(answer)
