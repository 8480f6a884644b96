"""``hpcflow history`` on a terminal of 80 columns, and through a pipe."""

from __future__ import annotations

from typing import Any

from hpcflow.cli.look.history import timeline
from hpcflow.model.journal import Decided, Held, Refused
from hpcflow.requeue.history import history
from tests.cli.desk import Desk
from tests.requeue.test_history import FIRST, RECORDS, at, attempt, decided

STALLED = attempt(1, 0, 5, 2021, cause="stalled", trained=10, began_at=0, train_step=130, saved=100)
RUNNING = attempt(2, 2063, 2070, trained=2085, began_at=100, train_step=110)
RUNNING.resume_from = "checkpoints/000000100"


def test_the_timeline_fits_80_columns_and_tells_each_thing_once_with_its_time() -> None:
    lines = timeline(history([STALLED, RUNNING], RECORDS), at(2130), 80)
    assert (
        "\n".join(lines)
        == """\
2026-03-01 11:59:51  held by ada
2026-03-01 11:59:52  released by ada
2026-03-01 12:00:00  attempt 1: job 4711 submitted
2026-03-01 12:00:05    started on n1, waited 5s
2026-03-01 12:31:40    notice (floor): no progress
2026-03-01 12:33:40    cancel (silent): no progress
2026-03-01 12:33:41    stalled, ran 33m 36s, train steps 0 to 130 (100 saved, 30
                         lost)
2026-03-01 12:33:50  wait (backoff): 1 failure, not before 2026-03-01 12:34:20
2026-03-01 12:34:21  refused: a limit is full
2026-03-01 12:34:22  resubmit (go_on): attempt 1 ended as stalled
2026-03-01 12:34:23  attempt 2: job 4712 submitted
2026-03-01 12:34:24    start now
2026-03-01 12:34:30    started on n1, waited 7s, from the checkpoint of train
                         step 100
2026-03-01 12:34:30    cancel requested by grace
2026-03-01 12:34:40    resumed by ada
2026-03-01 12:34:45    training again, 1m 04s after the previous end
2026-03-01 12:35:30    running for 1m 00s, train steps 100 to 110
total: ran 33m 36s, waited 12s, lost 30 train steps; times are UTC"""
    )


def test_through_a_pipe_each_thing_is_one_line() -> None:
    nodes = [f"n{number}" for number in range(200)]
    many = attempt(1, 0, 5, 605)
    many.nodes = nodes
    lines = timeline(history([many], []), at(700), None)
    assert lines[1] == f"2026-03-01 12:00:05    started on {', '.join(nodes)}, waited 5s"
    assert max(map(len, timeline(history([many], []), at(700), 80))) <= 80


def test_a_wait_that_is_said_again_and_again_is_told_once() -> None:
    records: list[Any] = []
    for tried_at in range(60, 6060, 60):
        why = {"reason": "a limit is full", "retryable": True}
        records.append(Refused(at=at(tried_at), attempt=1, **why))
        wait = {"action": "wait", "rule": "delayed", "why": "full", "not_before": at(tried_at + 30)}
        records.append(Decided(at=at(tried_at), after=0, **wait))
    lines = timeline(history([], records), at(7000), None)
    assert lines == [
        "2026-03-01 12:01:00  refused: a limit is full (100 times until 2026-03-01 13:40:00)",
        "2026-03-01 12:01:00  wait (delayed): full, not before 2026-03-01 13:40:30 "
        "(100 times until 2026-03-01 13:40:00)",
        "no job was submitted yet",
    ]


def test_clocks_that_differ_by_seconds_do_not_turn_the_story_round() -> None:
    """Slurm's clock is behind the one of the machine that decides."""
    second = attempt(2, 600, 601)
    go_on = decided(606, "resubmit", "go_on", "attempt 1 ended as preempted")
    lines = timeline(history([FIRST, second], [go_on]), at(700), None)
    told = [line[21:].strip().split(" ")[0] for line in lines[:-1]]
    one = ["attempt", "started"]
    assert told == [*one, "preempted,", "resubmit", *one, "running"]


def test_what_somebody_writes_into_a_journal_cannot_steer_a_terminal() -> None:
    held = Held(at=at(0), by="ada\x1b[2J\nevil")
    assert timeline(history([], [held]), at(1), None)[0].endswith("held by ada�[2J�evil")


def test_who_held_released_and_cancelled_a_run_and_what_it_is_now_is_told(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", "exit 75"), "--wait", code=1)
    for word in ("hold", "release", "cancel"):
        desk.say(word, "patient")
    told = desk.say("history", "patient")
    assert told.startswith(f"{run['run_id']}  cancelled (checkpointed)\n")
    for words in ("held by ", "released by ", "cancel requested by "):
        assert words in told
    story = desk.json("history", "patient")
    assert (story["state"], story["cause"]) == ("cancelled", "checkpointed")
    entries = story["entries"]
    assert [each["kind"] for each in entries] == ["held", "released", "cancel_requested"]
    assert all(each["by"] and each["at"].endswith("Z") for each in entries)
