"""Rows of squeue and sacct, as they can come, and what they mean."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.errors import SchedulerUnavailable
from hpcflow.model.state import AttemptState, Cause, cause_of_end
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.slurm.parse_jobs import (
    ACCOUNTING_FORMAT,
    FIELD_END,
    QUEUE_FORMAT,
    ROW_END,
    newest_of_each_record,
    parse_accounting,
    parse_queue,
)
from hpcflow.schedulers.slurm.units import parse_time

QUEUE_ROW = {
    "JobArrayID": "123", "State": "RUNNING", "exit_code": "0", "RestartCnt": "0",
    "SubmitTime": "2026-03-01T10:00:00", "StartTime": "2026-03-01T10:05:00",
    "EndTime": "2026-03-01T12:00:00", "PreemptTime": "N/A", "Partition": "gpu",
    "Account": "physics", "NodeList": "n[1-2]", "Name": "x-20260301-aaaaaaaa:1",
    "Reason": "None",
}  # fmt: skip
ACCOUNTING_ROW = {
    "JobID": "123", "State": "COMPLETED", "ExitCode": "0:0", "Submit": "2026-03-01T10:00:00",
    "Start": "2026-03-01T10:05:00", "End": "2026-03-01T12:00:00", "Partition": "gpu",
    "Account": "physics", "NodeList": "n[1-2]", "Reason": "None",
    "QOS": "normal", "ElapsedRaw": "6900",
    "AllocTRES": "billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=2000M,node=2",
    "DBIndex": "7", "JobName": "x-20260301-aaaaaaaa:1",
}  # fmt: skip


def _queued(**fields: str) -> JobInfo:
    (job,) = parse_queue(_queue_text({**QUEUE_ROW, **fields}))
    return job


def _queue_text(*rows: dict[str, str]) -> str:
    names = [field.split(":")[0] for field in QUEUE_FORMAT.split(",")]
    return "".join(FIELD_END.join(row[name] for name in names) + ROW_END + "\n" for row in rows)


def _accounted(**fields: str) -> JobInfo:
    (job,) = parse_accounting(_accounting_text({**ACCOUNTING_ROW, **fields}))
    return job


def _accounting_text(*rows: dict[str, str]) -> str:
    names = ACCOUNTING_FORMAT.split(",")
    return "".join(FIELD_END.join(row[name] for name in names) + "\n" for row in rows)


def _utc(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, tzinfo=timezone.utc)


def test_a_running_job() -> None:
    assert _queued() == JobInfo(
        job_id="123",
        job_name="x-20260301-aaaaaaaa:1",
        raw_state="RUNNING",
        state=AttemptState.RUNNING,
        reason=None,
        partition="gpu",
        account="physics",
        nodes=("n1", "n2"),
        restarts=0,
        submitted_at=_utc(10),
        started_at=_utc(10, 5),
        ended_at=None,  # 12:00 is when its time limit will end it
    )


def test_a_waiting_job_has_not_started_though_squeue_shows_when_it_may() -> None:
    job = _queued(State="PENDING", NodeList="", Reason="Resources", EndTime="2026-03-02T10:00:00")
    assert (job.state, job.reason) == (AttemptState.QUEUED, "Resources")
    assert (job.started_at, job.ended_at, job.nodes) == (None, None, ())


@pytest.mark.parametrize(
    ("raw_state", "text", "exit_code", "signal"),
    [
        ("FAILED", "768", 3, None),  # a wait status, to Slurm 22.05
        ("FAILED", "3:0", 3, None),  # from 23.02 on
        ("FAILED", "36608", 143, None),
        ("FAILED", "9", None, 9),
        ("FAILED", "0:9", None, 9),
        ("CANCELLED", "0:15", None, 15),
        ("COMPLETED", "0", 0, None),
        ("COMPLETED", "0:0", 0, None),
        ("TIMEOUT", "0:0", None, None),  # it says 0 of what it does not know
        ("CANCELLED", "0", None, None),
        ("PREEMPTED", "0:0", None, None),
        ("FAILED", "", None, None),
        ("FAILED", "N/A", None, None),
        ("FAILED", "4294967294", None, None),  # NO_VAL
        ("FAILED", "-2", None, None),
        ("RUNNING", "0:0", None, None),
    ],
)
def test_exit_codes(raw_state: str, text: str, exit_code: int | None, signal: int | None) -> None:
    job = _queued(State=raw_state, exit_code=text)
    assert (job.exit_code, job.signal) == (exit_code, signal)


def test_accounting_spells_some_things_in_its_own_way() -> None:
    cancelled = _accounted(State="CANCELLED by 1000", ExitCode="0:15")
    assert (cancelled.raw_state, cancelled.state) == ("CANCELLED by 1000", AttemptState.ENDED)
    assert cancelled.source == "accounting"
    assert _accounted(State="CANCELLED+").state is AttemptState.ENDED
    never = _accounted(State="CANCELLED", NodeList="None assigned", Start="None")
    assert (never.nodes, never.started_at) == ((), None)
    waiting = _accounted(State="PENDING", Start="Unknown", End="Unknown", NodeList="None assigned")
    assert (waiting.started_at, waiting.ended_at) == (None, None)


def test_a_word_that_nobody_knows_is_neither_an_end_nor_an_error() -> None:
    job = _queued(State="LEVITATING")
    assert (job.raw_state, job.state) == ("LEVITATING", AttemptState.UNKNOWN)
    assert job.ended_at is None


@pytest.mark.parametrize("raw_state", ["COMPLETING", "SUSPENDED", "STOPPED", "RESIZING"])
def test_what_is_not_over_has_no_end(raw_state: str) -> None:
    assert _queued(State=raw_state).ended_at is None


def test_names_and_reasons_of_others_may_hold_anything() -> None:
    odd = {**QUEUE_ROW, "Name": "a|b, c\nd", "Reason": "(ReqNodeNotAvail, Unavail:n1)\n%x"}
    jobs = parse_queue(_queue_text(odd, {**QUEUE_ROW, "JobArrayID": "124"}))
    assert [job.job_id for job in jobs] == ["123", "124"]
    assert jobs[0].job_name == "a|b, c\nd"


def test_a_row_of_the_queue_that_cannot_be_read_is_no_answer() -> None:
    """A job that is not seen would be taken for one that is gone, and sent again."""
    text = _queue_text(QUEUE_ROW)
    for wrong in (text + text[: len(text) // 2], text.replace("123", "one", 1), ROW_END):
        with pytest.raises(SchedulerUnavailable, match="an unexpected row"):
            parse_queue(wrong)
    assert parse_queue("") == []
    assert parse_accounting("\n") == []


def test_the_odd_name_of_another_job_hides_none() -> None:
    odd = f"od{FIELD_END}d{FIELD_END}x"
    rows = ({**QUEUE_ROW, "Name": odd}, {**QUEUE_ROW, "JobArrayID": "124"})
    first, second = parse_queue(_queue_text(*rows))
    assert (first.job_id, first.job_name, second.job_id) == ("123", odd, "124")


def test_what_a_wrapper_prints_around_the_queue_is_passed_over() -> None:
    text = _queue_text(QUEUE_ROW, {**QUEUE_ROW, "JobArrayID": "124_[1-3,7%2]"})
    seen = parse_queue(f"*** Maintenance ***\n\n{text}see you\n")
    assert seen == parse_queue(text)
    assert [job.job_id for job in seen] == ["123", "124_[1-3,7%2]"]


@pytest.mark.parametrize("word", ["REQUEUE_HOLD", "SPECIAL_EXIT"])
@pytest.mark.parametrize("told", ["75:0", str(75 << 8)])
def test_a_job_that_slurm_holds_for_its_exit_code_has_ended(word: str, told: str) -> None:
    """``--requeue=expedite`` of Slurm 25.11, and ``RequeueExitHold`` of all versions."""
    held = {"State": word, "exit_code": told, "NodeList": "", "StartTime": "N/A"}
    job = _queued(**held, RestartCnt="1", Reason="job requeued in held state")
    assert (job.state, job.exit_code, job.restarts) == (AttemptState.ENDED, 75, 0)
    assert job.is_held_for_its_exit
    assert (job.submitted_at, job.ended_at) == (None, parse_time(QUEUE_ROW["SubmitTime"]))
    assert cause_of_end(job.raw_state, job.exit_code) is Cause.CHECKPOINTED
    completing = _queued(**{**held, "State": "COMPLETING"}, RestartCnt="1")
    assert (completing.state, completing.restarts) == (AttemptState.COMPLETING, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"State": "REQUEUE_HOLD", "exit_code": "0:0"},
        {"State": "REQUEUE_HOLD", "exit_code": "0:15"},
        {"State": "PENDING", "exit_code": "75:0"},
        {"State": "EXPEDITING", "exit_code": "75:0"},
    ],
)
def test_a_job_that_somebody_else_requeued_or_that_slurm_restarts_waits(
    fields: dict[str, str],
) -> None:
    job = _queued(**fields, NodeList="", RestartCnt="1")
    assert (job.state, job.restarts) == (AttemptState.QUEUED, 1)
    assert not job.is_held_for_its_exit


def test_accounting_is_told_oldest_first_with_every_start_of_a_job() -> None:
    second = {**ACCOUNTING_ROW, "Submit": "2026-03-01T11:00:00", "State": "COMPLETED"}
    first = {**ACCOUNTING_ROW, "State": "PREEMPTED"}
    jobs = parse_accounting(_accounting_text(second, first))
    assert [job.raw_state for job in jobs] == ["PREEMPTED", "COMPLETED"]


def test_what_accounting_has_told_in_several_parts_is_one_record() -> None:
    """A job of which slurmdbd is asked week by week; it ended while it was asked."""
    running = {**ACCOUNTING_ROW, "State": "RUNNING", "End": "Unknown", "ElapsedRaw": "6899"}
    again = {**ACCOUNTING_ROW, "Submit": "2026-03-01T11:05:00", "DBIndex": "9"}
    # Resized twice within a second.
    resized = {
        **again, "State": "RESIZING", "End": "2026-03-01T11:05:00", "ElapsedRaw": "3600",
        "DBIndex": "8",
    }  # fmt: skip
    other = {**ACCOUNTING_ROW, "JobID": "123+1", "DBIndex": "10"}
    rows = [running, running, ACCOUNTING_ROW, resized, again, other]
    told = newest_of_each_record(parse_accounting(_accounting_text(*rows)))
    seen = sorted((job.job_id, job.raw_state, job.elapsed_s) for job in told)
    assert seen == [
        ("123", "COMPLETED", 3300),
        ("123", "COMPLETED", 6900),
        ("123", "RESIZING", 0),
        ("123+1", "COMPLETED", 6900),
    ]


def test_the_parts_of_a_resized_job_follow_each_other() -> None:
    """Slurm keeps the start of the whole job in each; ElapsedRaw counts from there."""
    first = {"State": "RESIZING", "End": "2026-03-01T10:35:00", "ElapsedRaw": "1800"}
    second = {"Submit": "2026-03-01T10:35:00", "End": "2026-03-01T11:05:00", "ElapsedRaw": "3600"}
    last = {"Submit": "2026-03-01T11:05:00", "End": "2026-03-01T12:00:00", "ElapsedRaw": "6800"}
    rows = [{**ACCOUNTING_ROW, **each} for each in (first, {**second, "State": "RESIZING"}, last)]
    one, two, three = parse_accounting(_accounting_text(*rows))
    assert (one.ended_at, two.ended_at) == (two.started_at, three.started_at)
    # It was suspended for 100 seconds of the last part.
    assert [each.elapsed_s for each in (one, two, three)] == [1800, 1800, 3200]
    assert _accounted().started_at != _accounted().submitted_at, "it waited"
    assert _accounted(Submit="2026-03-01T10:05:00").elapsed_s == 6900


def test_a_node_list_that_cannot_be_read_is_kept_as_it_is() -> None:
    assert _queued(NodeList="n[1-").nodes == ("n[1-",)


@given(st.text(max_size=200))
def test_no_output_is_a_traceback(text: str) -> None:
    for output in (text, FIELD_END.join([text] * 12) + ROW_END):
        with suppress(SchedulerUnavailable):
            parse_queue(output)
    parse_accounting(text)
    parse_accounting(FIELD_END.join([text] * 11))
