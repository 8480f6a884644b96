"""What every kind of answer of sbatch means. A wrong "no job exists" would train twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.errors import (
    SchedulerError,
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionRefused,
)
from hpcflow.schedulers.base import JobRef
from hpcflow.schedulers.slurm.run_command import Answer
from hpcflow.schedulers.slurm.submit import DELAYS, DOUBTS, REFUSALS, UNAVAILABLE, job_from


def _answer(stdout: str = "", stderr: str = "", exit_code: int | None = 0) -> Answer:
    return Answer("sbatch", exit_code, stdout, stderr, timeout_s=180)


def _failed(*lines: str) -> Answer:
    return _answer(stderr="".join(f"sbatch: error: {line}\n" for line in lines), exit_code=1)


def _error(answer: Answer) -> SchedulerError:
    with pytest.raises(SchedulerError) as error:
        job_from(answer)
    assert error.value.next_action
    return error.value


BANNER = "-----\n  Welcome to the Supercomputer\n-----\n--> Verifying job request...OK\n"


@pytest.mark.parametrize(
    ("stdout", "job"),
    [
        ("123\n", JobRef("123")),
        ("123;frontier\n", JobRef("123", "frontier")),
        ("Submitted batch job 123\n", JobRef("123")),
        ("Submitted batch job 123 on cluster c1-2\n", JobRef("123", "c1-2")),
        (f"{BANNER}123\n", JobRef("123")),
        (f"{BANNER}Submitted batch job 123\n", JobRef("123")),
    ],
)
def test_a_job_that_exists(stdout: str, job: JobRef) -> None:
    assert job_from(_answer(stdout)) == job
    warned = _answer(stdout, stderr="sbatch: warning: can't run 1 processes on 2 nodes\n")
    assert job_from(warned) == job


@pytest.mark.parametrize(
    "answer",
    [
        _answer(""),
        _answer("\n"),
        _answer("%%% garbled"),
        _answer("12 3\n"),
        _answer("0\n"),
        _answer("-5\n"),
        _answer("12٣\n"),
        _answer("123\n124\n"),
        _answer("123\n", exit_code=1),
        _answer("", exit_code=1),
        _answer(BANNER, exit_code=1),
        _answer("", exit_code=-9),
        _answer("", exit_code=-15, stderr="sbatch: error: Invalid account\n"),
        _answer("", exit_code=None),
        _answer("12", exit_code=None),
        _failed("Batch job submission failed: a message that is in no table"),
        _failed("Batch job submission failed: Unspecified error"),
        *(_failed(f"Batch job submission failed: {doubt}") for doubt in DOUBTS),
        # A word of doubt outweighs a verdict that sounds certain.
        _failed(
            "Slurm temporarily unable to accept job, sleeping and retrying",
            "slurm_receive_msg: Socket timed out on send/recv operation",
            "Batch job submission failed: Invalid partition name specified",
        ),
    ],
)
def test_a_job_that_may_exist(answer: Answer) -> None:
    assert type(_error(answer)) is SubmissionInDoubt


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.text)
def test_a_job_that_will_never_exist(refusal: object) -> None:
    text = getattr(refusal, "text")  # noqa: B009
    error = _error(_failed(f"Batch job submission failed: {text}"))
    assert type(error) is SubmissionRefused
    assert error.exit_code == 2
    assert "Batch job submission failed" not in error.message
    key = getattr(refusal, "key")  # noqa: B009
    assert (error.where.key if error.where else None) == key


@pytest.mark.parametrize(
    ("limit", "key"),
    [
        ("AssocMaxWallDurationPerJobLimit", "resources.time_limit"),
        ("QOSMaxWallDurationPerJobLimit", "resources.time_limit"),
        ("QOSMaxNodePerUserLimit", "resources.nodes"),
        ("AssocMaxCpuPerJobLimit", "resources.cpus_per_task"),
        ("QOSMaxCpuPerNode", "resources.cpus_per_task"),
        ("QOSMinGRES", "resources.gpus_per_node"),
        ("AssocMaxGRESPerNode", "resources.gpus_per_node"),
        ("QOSMaxMemoryPerNode", "resources.mem"),
        ("QOSMinBilling", "resources"),
    ],
)
def test_a_limit_that_this_very_job_breaks(limit: str, key: str) -> None:
    error = _error(_failed(limit, "Batch job submission failed: " + POLICY))
    assert type(error) is SubmissionRefused
    assert error.where is not None
    assert error.where.key == key


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    "lines",
    [
        ("AssocMaxSubmitJobLimit", "Batch job submission failed: " + POLICY),
        ("AssocGrpSubmitJobsLimit", "Batch job submission failed: " + POLICY),
        ("QOSMaxSubmitJobPerUserLimit", "Batch job submission failed: " + POLICY),
        ("QOSMaxJobsPerUserLimit", "Batch job submission failed: " + POLICY),
        ("Batch job submission failed: " + POLICY,),
        (
            "Slurm job queue full, sleeping and retrying",
            "Batch job submission failed: Unable to create job record, try again",
        ),
        *((f"Batch job submission failed: {delay}",) for delay in DELAYS),
    ],
)
def test_a_limit_that_passes_by_itself(lines: tuple[str, ...]) -> None:
    error = _error(_failed(*lines))
    assert type(error) is SubmissionDelayed
    assert error.retryable


@pytest.mark.parametrize("text", UNAVAILABLE)
def test_a_request_that_never_arrived(text: str) -> None:
    assert type(_error(_failed(f"Batch job submission failed: {text}"))) is SchedulerUnavailable


@pytest.mark.parametrize(
    "lines",
    [
        ("unrecognized option '--bogus'", 'Try "sbatch --help" for more information'),
        ("--cpus-per-gpu is mutually exclusive with --cpus-per-task",),
        ("Please name an account with -A", "Batch job submission failed: Unspecified error"),
    ],
)
def test_a_complaint_that_is_in_no_table_is_shown_as_it_is(lines: tuple[str, ...]) -> None:
    error = _error(_failed(*lines))
    assert type(error) is SubmissionRefused
    assert lines[0] in error.message


@pytest.mark.parametrize(
    "lines",
    [
        ("error: Couldn't load specified plugin name for auth/munge: Incompatible plugin version",),
        ("fatal: Can't find plugin for select/linear",),
        ("error: spank: x.so: Failed to load plugin x.so. Aborting.",),
        ("error: Failed to initialize plugin stack",),
        ("error: Unable to open file /x/job.sbatch",),
    ],
)
def test_an_sbatch_that_cannot_start_is_no_refusal(lines: tuple[str, ...]) -> None:
    """Slurm is being upgraded on this machine, for instance: a moment later it works again."""
    error = _error(_failed(*lines))
    assert type(error) is SchedulerUnavailable
    assert error.message.startswith("sbatch could not start")
    of_a_wrapper = "job 12 is sent\n" + "\n".join(lines)
    assert type(_error(_answer("", of_a_wrapper, 1))) is SubmissionInDoubt


@pytest.mark.parametrize(
    "stderr",
    [
        "/usr/bin/sbatch: line 3: 17742 Killed    /opt/slurm/bin/sbatch",
        "Traceback (most recent call last):\nKeyError: 'account'",
        "sbatch: warning: x\nwrapper: could not write its log",
    ],
)
def test_the_complaint_of_a_wrapper_is_a_doubt(stderr: str) -> None:
    """The sbatch inside it may have done its work."""
    assert type(_error(_answer("", stderr, 1))) is SubmissionInDoubt


def test_the_more_exact_reason_decides_which_key_it_is() -> None:
    error = _error(
        _failed(
            "Memory specification can not be satisfied",
            "Batch job submission failed: Requested node configuration is not available",
        )
    )
    assert error.where is not None
    assert error.where.key == "resources.mem"


@given(
    stdout=st.text(max_size=60),
    stderr=st.text(max_size=60),
    exit_code=st.one_of(st.none(), st.integers(-64, 255)),
)
def test_any_answer_is_a_job_or_one_of_four_errors(
    stdout: str, stderr: str, exit_code: int | None
) -> None:
    try:
        job = job_from(_answer(stdout, stderr, exit_code))
    except SchedulerError as error:
        assert error.message
    else:
        assert exit_code == 0
        assert job.job_id in stdout
