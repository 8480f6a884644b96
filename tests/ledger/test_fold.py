"""What journal and events say about a run, told as a story: line by line, and what it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import to_text
from hpcflow.ledger import fold
from hpcflow.ledger.derive import bill_due_at, derive_attempt, derive_run, money, run_row
from hpcflow.ledger.fold import MAX_METRICS, RunFold, fold_events, fold_journal, fold_mirror
from hpcflow.ledger.rows import BY_JOB, BY_PERSON, AttemptRow, CheckpointRow, RunRow
from hpcflow.model.journal import Restored, parse_record, parse_record_or_none
from hpcflow.model.state import AttemptState, Cause
from tests.ledger.lines import (
    accounted,
    at,
    cancel_requested,
    checkpoint,
    ended,
    event,
    exited,
    intended,
    late_metrics,
    mirror,
    observed,
    progress,
    refused,
    removed,
    removed_by_hand,
    resumed,
    started,
    submitted,
    text,
    withdrawn,
)
from tests.storage.runs import make_run


class Story:
    """A run whose files grow."""

    def __init__(self, **spec: Any) -> None:
        self.run = make_run(Path("/scratch"), **spec)
        self.fold = RunFold(self.run.run_id)
        self.skipped = 0

    def journal(self, *lines: bytes) -> Story:
        self.skipped += fold_journal(self.fold, [line.rstrip(b"\n") for line in lines])
        return self

    def events(self, attempt: int, *lines: bytes) -> Story:
        self.skipped += fold_events(self.fold, attempt, [line.rstrip(b"\n") for line in lines])
        return self

    def attempts(self) -> list[AttemptRow]:
        numbers = sorted(self.fold.attempts)
        return [derive_attempt(self.run.run_id, n, self.fold.attempts[n]) for n in numbers]

    def row(self) -> RunRow:
        row = run_row(self.run)
        derive_run(row, self.fold, self.attempts())
        return row

    @property
    def state(self) -> str:
        return self.row().state


def test_a_run_from_its_first_record_to_its_end() -> None:
    story = Story()
    assert story.state == "created"
    assert story.journal(intended(1)).state == "submitting"
    assert story.journal(submitted(1, 1)).state == "queued"
    assert story.journal(observed(1, AttemptState.RUNNING, 2, started_at=at(2))).state == "running"
    assert story.events(1, started(1, 2.1), progress(10, 3, loss=0.5)).state == "running"
    story.events(1, event("finished", 60, train_step=20, metrics={"accuracy": 0.97}, model="m.pt"))
    assert story.events(1, exited(0, 62)).state == "running"
    assert story.attempts()[0].state == "completing"
    story.journal(ended(1, Cause.COMPLETED, 65, exit_code=0, ended_at=at(62)))

    row = story.row()
    assert (row.state, row.cause) == ("completed", "completed")
    assert (row.started_at, row.completed_at) == (at(2), at(62))
    assert (row.train_step, row.metrics) == (20, {"loss": 0.5, "accuracy": 0.97})
    assert row.final_model == "m.pt"
    assert row.gpu_hours == 8.0  # one hour, two nodes, four GPUs each
    assert row.job_id == "101"
    assert story.skipped == 0


def test_the_jobs_own_word_is_enough_to_see_it_run() -> None:
    """Nobody asked Slurm, or the journal's next line was lost; the job runs nevertheless."""
    story = Story().journal(intended(1)).events(1, started(1, 1))
    assert story.state == "running"
    assert story.attempts()[0].job_id == "101"
    assert story.attempts()[0].nodes == ["n1", "n2"]
    assert story.attempts()[0].started_at == at(1)


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (Cause.COMPLETED, "completed"),
        (Cause.CANCELLED, "cancelled"),
        (Cause.FAILED, "failed"),
        (Cause.OUT_OF_MEMORY, "failed"),
        (Cause.PREEMPTED, "waiting"),
        (Cause.TIMEOUT, "waiting"),
        (Cause.CHECKPOINTED, "waiting"),
    ],
)
def test_what_an_end_means_for_the_run(cause: Cause, state: str) -> None:
    row = Story().journal(intended(1), submitted(1), ended(1, cause, 5)).row()
    assert (row.state, row.cause) == (state, cause.value)
    assert row.completed_at == (None if state == "waiting" else at(5))


def test_what_was_looked_for_in_the_mirror_is_known_until_the_run_goes_on() -> None:
    def restored(minutes: float, **more: Any) -> bytes:
        said = Restored(at=at(minutes), by="ada", url="s3://b/r", after=1, site="x", **more)
        return text(said)

    story = Story().journal(intended(1), submitted(1), ended(1, Cause.PREEMPTED, 5))
    story.journal(restored(6))  # as an older hpcflow wrote it
    looked = {"at": to_text(at(6)), "after": 1}
    assert story.fold.journal["restored"] == looked
    story.journal(restored(7, newest=0))
    assert story.fold.journal["restored"] == {**looked, "at": to_text(at(7)), "newest": 0}
    story.journal(restored(8, newest=10**30))  # no number that a train step has, and no crash
    assert story.fold.journal["restored"] == {**looked, "at": to_text(at(8))}
    story.journal(intended(2, 9))
    assert "restored" not in story.fold.journal
    assert story.skipped == 0


def test_an_end_that_was_seen_but_not_judged_yet_is_still_under_way() -> None:
    story = Story().journal(intended(1), submitted(1), observed(1, AttemptState.ENDED, 5))
    assert (story.state, story.attempts()[0].state) == ("running", "completing")


def test_a_refused_attempt_leaves_the_run_as_it_was_before() -> None:
    story = Story().journal(intended(1), refused(1))
    assert (story.state, story.attempts()[0].state) == ("created", "withdrawn")
    assert story.attempts()[0].reason == "Invalid account"
    story.journal(intended(1, 5), submitted(1, 5), ended(1, Cause.PREEMPTED, 9))
    assert story.journal(resumed(10), intended(2, 10), withdrawn(2, 11)).state == "waiting"
    assert story.row().cause == "preempted"


def test_a_number_that_is_used_again_forgets_its_refusal() -> None:
    story = Story().journal(intended(1), refused(1), intended(1, 5))
    assert (story.state, story.attempts()[0].reason) == ("submitting", None)


def test_a_job_that_is_found_after_all_was_not_withdrawn() -> None:
    assert Story().journal(intended(1), withdrawn(1), submitted(1, 2)).state == "queued"


def test_a_cancelled_run_stays_cancelled_whatever_its_last_end_was() -> None:
    assert Story().journal(cancel_requested(1)).state == "cancelled"
    story = Story().journal(intended(1), submitted(1), cancel_requested(3))
    assert story.state == "queued"  # until its job is gone
    row = story.journal(ended(1, Cause.PREEMPTED, 4, ended_at=at(4))).row()
    assert (row.state, row.completed_at) == ("cancelled", at(4))


def test_a_trial_that_its_sweep_has_pruned_is_pruned_not_cancelled() -> None:
    pruned = cancel_requested(3, signal="pruned")
    story = Story().journal(intended(1), submitted(1), pruned)
    row = story.journal(ended(1, Cause.CANCELLED, minutes=4)).row()
    assert (row.state, row.cause, story.attempts()[0].cause) == ("cancelled", "pruned", "pruned")

    again = story.journal(resumed(5), intended(2, 5), submitted(2, 5), cancel_requested(6))
    row = again.journal(ended(2, Cause.CANCELLED, minutes=7)).row()
    assert (row.state, row.cause) == ("cancelled", "cancelled"), "a person has cancelled it"

    finished = Story().journal(intended(1), submitted(1), pruned, ended(1, Cause.COMPLETED))
    row = finished.row()
    assert (row.state, row.cause) == ("completed", "completed")


def test_a_run_that_finished_before_the_cancel_is_completed() -> None:
    story = Story().journal(intended(1), submitted(1), cancel_requested(3))
    assert story.journal(ended(1, Cause.COMPLETED, 4)).state == "completed"


def test_a_resumed_run_goes_on() -> None:
    story = Story().journal(intended(1), submitted(1), ended(1, Cause.FAILED, 5))
    assert story.state == "failed"
    assert story.journal(resumed(6)).state == "waiting"
    assert story.row().completed_at is None
    assert story.journal(intended(2, 7, resume_from="checkpoints/5")).state == "submitting"
    assert story.row().cause is None
    assert story.attempts()[1].resume_from == "checkpoints/5"
    story.journal(submitted(2, 7), ended(2, Cause.COMPLETED, 9))
    assert (story.state, story.row().attempts) == ("completed", 2)


def test_what_was_really_resumed_from_counts() -> None:
    story = Story().journal(intended(1, resume_from="checkpoints/5"))
    story.events(1, started(1), event("train_started", resumed_from="checkpoints/3", train_step=3))
    assert story.attempts()[0].resume_from == "checkpoints/3"
    assert story.row().train_step == 3


def test_progress_is_that_of_the_newest_attempt_that_made_any() -> None:
    story = Story().journal(intended(1), intended(2)).events(1, progress(50, loss=0.1))
    story.events(2, started(2))
    assert story.row().train_step == 50
    story.events(2, progress(40, loss=0.2))
    assert (story.row().train_step, story.row().metrics) == (40, {"loss": 0.2})


def test_of_what_was_used_the_last_word_counts_and_it_is_no_sign_of_life() -> None:
    story = Story()
    story.journal(intended(1), submitted(1))
    story.events(1, started(1), event("usage", 1, seconds=60, mem_peak_mb=100))
    story.events(
        1, event("usage", 9, seconds=540, mem_peak_mb=300), event("usage", 10, seconds="x")
    )
    story.events(1, event("usage", 11, seconds=1e300, mem_peak_mb=1))
    report = story.fold.attempts[1].report
    assert report["usage"] == {"seconds": 540.0, "mem_peak_mb": 300}
    assert "signs" not in report.get("rhythm", {})
    assert story.skipped == 2


def test_how_long_data_was_waited_for_is_known() -> None:
    story = Story()
    story.journal(intended(1), submitted(1))
    waited = event("progress", 2, train_step=5, metrics={}, data_wait_s=7.5)
    story.events(1, started(1), event("train_started", 1, train_step=0, loader_workers=2), waited)
    report = story.fold.attempts[1].report
    assert (report["data_wait_s"], report["loader_workers"]) == (7.5, 2)
    reached_at = report["progress_at"]
    story.events(1, event("usage", 8, seconds=480), event("finished", 9, train_step=5))
    assert report["progress_at"] == reached_at, "the end of an evaluation is no train step"
    story.events(1, event("progress", 10, train_step=6, metrics={}))
    assert report["progress_at"] > reached_at


def test_a_loss_that_is_no_number_hides_the_old_one() -> None:
    story = Story().events(1, progress(1, loss=0.5, lr=0.1), progress(2, loss=None))
    assert story.row().metrics == {"lr": 0.1}


def test_a_job_that_slurm_restarted_runs_again() -> None:
    story = Story().journal(intended(1)).events(1, started(1, 1), exited(1, 2), started(1, 5))
    assert (story.state, story.attempts()[0].exit_code) == ("running", None)
    assert story.attempts()[0].started_at == at(1)


def test_the_scheduler_wins_and_the_events_fill_in() -> None:
    story = Story().journal(intended(1), submitted(1))
    story.events(1, started(1, 2), exited(3, 9))
    assert story.attempts()[0].exit_code == 3
    assert story.attempts()[0].ended_at == at(9)
    story.journal(
        observed(1, AttemptState.ENDED, 9, started_at=at(1), ended_at=at(8), nodes=["n7"])
    )
    story.journal(ended(1, Cause.FAILED, 10, exit_code=1, raw_state="FAILED"))
    attempt = story.attempts()[0]
    assert (attempt.started_at, attempt.ended_at) == (at(1), at(8))
    assert (attempt.nodes, attempt.exit_code) == (["n7"], 1)
    assert attempt.rule == "accounting says so"


def test_checkpoints_are_kept_by_path_and_the_last_one_written_there_wins() -> None:
    story = Story().events(2, checkpoint(10, 5, size_bytes=2)).events(1, checkpoint(10, 1))
    story.events(2, checkpoint(20, 6, epoch=1.5, metrics={"loss": 0.5, "bad": None}))
    first, second = (story.fold.checkpoints[f"checkpoints/{step}"] for step in (10, 20))
    assert (first.attempt, first.size_bytes, first.created_at) == (2, 2, at(5))
    assert (second.epoch, second.metrics) == (1.5, {"loss": 0.5})


REMOVALS = {
    "by its job, by the rule": ([], {1: [checkpoint(10, 1), removed(10, 2)]}, BY_JOB),
    "by the attempt after it": ([], {1: [checkpoint(10, 1)], 2: [removed(10, 2)]}, BY_JOB),
    "by a person": ([removed_by_hand(10, 1, 2)], {1: [checkpoint(10, 1)]}, BY_PERSON),
    "by both": ([removed_by_hand(10, 1, 2)], {1: [checkpoint(10, 1), removed(10)]}, BY_PERSON),
    "and made again": ([], {1: [checkpoint(10, 1), removed(10, 2), checkpoint(10, 3)]}, None),
    "and made again by the next attempt": (
        [removed_by_hand(10, 1, 2)],
        {1: [checkpoint(10, 1), removed(10, 2)], 2: [checkpoint(10, 3)]},
        None,
    ),
}


def read_in_any_order(records: list[Any], events: dict[int, list[Any]]) -> Iterator[CheckpointRow]:
    """Yield the only checkpoint of a run, for each order in which its files may be read."""
    files = {0: records, **events}
    for order in permutations(files):
        story = Story()
        for number in order:
            story.events(number, *files[number]) if number else story.journal(*records)
        assert story.skipped == 0
        (row,) = story.fold.checkpoints.values()
        yield row


@pytest.mark.parametrize("told", REMOVALS)
def test_a_checkpoint_that_was_removed_stays_so_whichever_file_is_read_first(told: str) -> None:
    records, events, by = REMOVALS[told]
    for row in read_in_any_order(records, events):
        assert row.removed == by


LATE = {
    "by the attempt that made it": (
        [],
        {1: [checkpoint(10, 1), late_metrics(10, 5, loss=0.1)]},
        None,
    ),
    "by the next attempt": (
        [],
        {1: [checkpoint(10, 1, metrics={"loss": 0.5})], 2: [late_metrics(10, 5, loss=0.1)]},
        None,
    ),
    "of one that was removed by its job since": (
        [],
        {1: [checkpoint(10, 1)], 2: [late_metrics(10, 5, loss=0.1), removed(10, 6)]},
        BY_JOB,
    ),
    "of one that was removed by a person since": (
        [removed_by_hand(10, 2, 6)],
        {1: [checkpoint(10, 1)], 2: [late_metrics(10, 5, loss=0.1)]},
        BY_PERSON,
    ),
}


@pytest.mark.parametrize("told", LATE)
def test_what_is_logged_later_is_the_checkpoints_whichever_file_is_read_first(told: str) -> None:
    records, events, by = LATE[told]
    for row in read_in_any_order(records, events):
        assert row.removed == by
        assert by or (row.metrics, row.epoch, row.created_at) == ({"loss": 0.1}, 1.5, at(1))


def test_what_is_logged_later_is_no_new_checkpoint() -> None:
    story = Story().journal(intended(1), submitted(1)).events(1, started(1), checkpoint(10, 1))
    story.journal(ended(1, Cause.PREEMPTED), intended(2), submitted(2))
    story.events(2, started(2, 7), late_metrics(10, 9, loss=0.1))
    first, second = story.attempts()
    assert first.report["saved_at"] == to_text(at(1))
    assert "saved" not in second.report


def test_a_run_whose_program_says_nothing_of_its_train_steps_is_as_far_as_its_checkpoints() -> None:
    story = Story().journal(intended(1), submitted(1)).events(1, started(1), checkpoint(10, 1))
    assert story.row().train_step == 10
    story.events(1, checkpoint(20, 2), progress(22, 2))
    assert story.row().train_step == 22
    story.events(1, checkpoint(21, 3))
    assert story.row().train_step == 22


def failed(train_step: int, why: str = "[Errno 28] No space left on device") -> bytes:
    return event("checkpoint_failed", train_step=train_step, why=why)


def test_a_save_that_failed_is_told_until_one_succeeds() -> None:
    story = Story().journal(intended(1), submitted(1))
    story.events(1, started(1), checkpoint(100), failed(200))
    assert story.row().save_error == "train step 200: [Errno 28] No space left on device"
    story.events(1, failed(300, "[Errno 122] Disk quota exceeded"))
    assert story.row().save_error == "train step 300: [Errno 122] Disk quota exceeded"
    story.events(1, checkpoint(400))
    assert story.row().save_error is None
    story.events(1, failed(500))

    story.journal(ended(1, Cause.PREEMPTED), intended(2), submitted(2))
    story.events(2, started(2), progress(410))
    assert story.row().save_error == "train step 500: [Errno 28] No space left on device"
    story.events(2, checkpoint(500))
    assert story.row().save_error is None
    assert story.skipped == 0


def test_a_removal_that_makes_no_sense_is_skipped() -> None:
    story = Story().journal(removed_by_hand(10, 1).replace(b"checkpoints/10", b"../../etc"))
    story.journal(removed_by_hand(10, 10**6 - 1).replace(b"999999", b"9999999"))
    assert (story.skipped, story.fold.checkpoints) == (2, {})


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"event": "started"}',
        b'{"at": "yesterday", "event": "started"}',
        b'{"at": "0001-01-01T00:00:00+14:00", "event": "started"}',
        b'{"at": "2026-03-01T12:00:00Z", "event": ["started"]}',
        b'{"at": "2026-03-01T12:00:00Z", "event": "from_the_future"}',
        b"[" * 100_000,
        event("checkpoint", train_step=-1, path="checkpoints/1"),
        event("checkpoint", train_step=1, path="../../etc"),
        event("checkpoint", train_step=1, path="/etc/passwd"),
        event("checkpoint", train_step=1),
        event("checkpoint", train_step=10**30, path="c"),
        event("checkpoint_metrics", train_step=1, path="../../etc"),
        event("checkpoint_metrics", train_step=1, path="c", created_at=["then"]),
        event("checkpoint_removed", train_step=1, path="../../etc"),
        event("checkpoint_removed", train_step=1),
        event("checkpoint_failed", train_step=1),
        event("checkpoint_failed", why="it did"),
        event("checkpoint_failed", train_step="1", why=["it did"]),
    ],
)
def test_a_line_that_says_nothing_is_counted_and_changes_nothing(line: bytes) -> None:
    story = Story().journal(intended(1))
    before = story.row()
    story.events(1, line)
    assert story.skipped == 1
    assert story.row() == before
    assert story.fold.checkpoints == {}


@pytest.mark.parametrize(
    "line",
    [
        b'{"at": "2026-03-01T12:00:00Z", "record": "submitted"}',
        b'{"at": "2026-03-01T12:00:00Z", "record": "resumed", "by": 1}',
        b'{"at": "2026-03-01T12:00:00", "record": "resumed", "by": "ada"}',
        intended(1).replace(b'"attempt":1', b'"attempt":0'),
        intended(1).replace(b'"attempt":1', b'"attempt":10000000'),
    ],
)
def test_a_journal_line_that_says_nothing_is_counted(line: bytes) -> None:
    story = Story().journal(line)
    assert story.skipped == 1
    assert story.fold.attempts == {}


def test_hostile_values_of_a_known_event_are_left_out() -> None:
    story = Story().journal(intended(1))
    story.events(
        1,
        event("started", job_id="1\0", nodes=["n\0", 7]),
        b'{"at": "2026-03-01T12:00:00Z", "event": "progress", "train_step": 1e999, "epoch": NaN,'
        b' "metrics": {"loss": Infinity, "\\ud800": 1, "big": 1' + b"0" * 400 + b"}}",
        event("progress", train_step=True, metrics=[1], total_train_steps="many"),
        event("exited", exit_code=10**12),
    )
    row, (attempt,) = story.row(), story.attempts()
    assert (row.train_step, row.epoch, row.metrics) == (None, None, {"?": 1.0})
    assert (attempt.job_id, attempt.nodes, attempt.exit_code) == ("1�", ["n�", "7"], None)
    json.dumps([row.metrics, attempt.report], allow_nan=False)


def test_the_life_that_a_job_says_it_is_is_that_of_its_last_start() -> None:
    story = Story().journal(intended(1))
    story.events(1, event("started", job_id="1", nodes=[], sluid="s5P1M8J202S900"))
    assert story.attempts()[0].report["sluid"] == "s5P1M8J202S900"
    for sluid in (None, 7, ["s5P1M8J202S900"]):
        story.events(1, event("started", job_id="1", nodes=[], sluid=sluid))
        assert "sluid" not in story.attempts()[0].report


def test_a_job_cannot_fill_the_ledger_with_metric_names() -> None:
    story = Story()
    for number in range(MAX_METRICS + 10):
        story.events(1, progress(number, **{f"m{number}": 1.0, "x" * 201: 1.0}))
    assert len(story.row().metrics) == MAX_METRICS


def test_a_job_cannot_fill_the_ledger_with_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order and in any portions, the newest stay, and of the removed ones fewer."""
    monkeypatch.setattr(fold, "MAX_CHECKPOINTS", 10)
    saved = [checkpoint(step) for step in range(1, 31)]
    for lines in (saved, saved[::-1], [*saved[15:], *saved[:15]]):
        together, apart = Story().events(1, *lines), Story()
        for line in lines:
            apart.events(1, line)
        for story in (together, apart):
            assert sorted(row.train_step for row in story.fold.checkpoints.values()) == [
                *range(21, 31)
            ]
    story = Story().events(1, *saved, *(removed(step) for step in range(25, 31)))
    there = [row for row in story.fold.checkpoints.values() if row.removed is None]
    assert [row.train_step for row in there] == [*range(15, 25)]
    story = Story().journal(*(removed_by_hand(step, 1) for step in range(1, 31)))
    assert len(story.fold.checkpoints) == 10
    fold_mirror(story.fold, [mirror("mirrored", step).rstrip() for step in range(1, 31)])
    assert sorted(row.train_step for row in story.fold.mirrored.values()) == [*range(21, 31)]


def test_run_json_becomes_a_full_job_record() -> None:
    environment = {"container": {"image": "train.sif"}}
    row = Story(environment=environment, params={"deep": [1.5]}).row()
    assert (row.user_name, row.project, row.site) == ("ada", "vision", "devcluster")
    assert (row.framework, row.image) == ("pytorch", "train.sif")
    assert (row.nodes, row.gpus, row.gpu_type) == (2, 8, "a100")
    assert row.command == ["python3", "train.py", "--epochs", "3"]
    assert row.resources["time_limit_min"] == 240
    assert row.params == {"deep": [1.5]}
    assert row.data == {"digits": "sha256:1234"}
    assert row.estimated_cost_usd == "12.50"


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *(("1E+3", "1000"), ("0.10", "0.10"), ("NaN", None), ("much", None), (None, None)),
        *(("1E+999999", None), ("1E-999999", None)),  # longer than anybody has memory for
        *(("9E+18", "9" + "0" * 18), ("1E+19", None)),  # and sums must be shown to eight places
    ],
)
def test_money_is_plain_digits(text: str | None, amount: str | None) -> None:
    assert money(text) == amount


def test_accounting_is_asked_for_a_bill_for_a_week() -> None:
    """As docs/costs.md says."""
    journal: dict[str, Any] = {"submitted": {}, "ended": {"at": to_text(at(0))}}
    asked = []
    while (due := bill_due_at(journal)) is not None:
        asked.append(due)
        bill = {"source": "events", "at": to_text(due), "tries": len(asked)}
        journal["accounted"] = bill
    waits_min = [(b - a).total_seconds() / 60 for a, b in pairwise(asked)]
    assert waits_min[:3] == [0.5, 2, 8]
    assert 7 <= (asked[-1] - at(0)).days < 8


def test_lines_that_can_be_no_record_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in a store of others may have five hundred million of them."""

    def parse(*_: object) -> object:
        raise AssertionError("parsed")

    monkeypatch.setattr("hpcflow.model.events._fast_parser", parse)
    monkeypatch.setattr("hpcflow.model.journal.parse_record", parse)
    monkeypatch.setattr("hpcflow.ledger.fold.parse_object", parse)
    lines = [b"x", b"{", b"{" * 31, b"x" * 100, b"0" * 5000]
    fold = RunFold("a-20260301-000000-aaaa")
    assert fold_events(fold, 1, lines) == len(lines)
    assert fold_journal(fold, lines) == len(lines)
    assert fold_mirror(fold, lines) == len(lines)
    assert list(map(parse_record_or_none, lines)) == [None] * len(lines)


def test_a_bill_is_the_same_with_and_without_the_times_of_its_charges() -> None:
    """Older versions wrote them into each charge."""
    short = accounted(1, "3", "gpu:a100", "node")
    said = json.loads(short)
    assert all(line.keys() == {"kind", "hours"} for line in said["charges"])
    own = {"begin": said["started_at"], "end": said["ended_at"]}
    long = json.dumps({**said, "charges": [{**line, **own} for line in said["charges"]]}).encode()
    rows = [Story().journal(intended(1), line).fold.attempts[1].journal for line in (short, long)]
    assert rows[0] == rows[1]
    assert rows[0]["accounted"]["charges"][0]["begin"] == said["started_at"]
    assert parse_record(long).to_line().encode() == short
