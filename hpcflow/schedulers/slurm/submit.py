"""Interpret sbatch's answer: the job exists, it does not, or it is unknown. Pure.

The order of the checks matters. A message of doubt outweighs all others, because a second job
cannot be undone. refusals.py has the messages.
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
_LATER: Final = "try again later: `hpcflow resume` submits the same run"


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
        return _unavailable(answer, _LATER)
    if POLICY in text:
        return _limit(answer)
    if any(message in text for message in DELAYS):
        return SubmissionDelayed(
            f"Slurm does not accept the job now: {_errors_of(answer)}", next_action=_LATER
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
            f"a limit on your jobs is full: {_errors_of(answer)}", next_action=_LATER
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
            return _unavailable(answer, _LATER)
        return _refused(answer, Refusal("", None, "correct the error of sbatch"))
    reasons = [line for line in answer.stderr.splitlines() if _VERDICT not in line]
    if reasons and f"{_VERDICT} Unspecified error" in answer.stderr:
        return _refused(answer, Refusal("", None, "this is a rule of the site; see its pages"))
    return _in_doubt(answer)
