"""Rows of a shared ledger beside files that a purge has taken, or that cannot be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from hpcflow.ledger.rows import Known
from hpcflow.model.events import parse_event
from hpcflow.projection import read_known
from hpcflow.runtime.reading import MAX_LINES_FILE_BYTES
from hpcflow.storage.layout import RunDir
from tests.requeue.test_rows_of_others import (
    Shared,
    make,
    nonsense,
    nonsense_in_the_report,
    nothing,
    story,
)
from tests.requeue.training import MINUTE
from tests.restore.mirrored import FILES
from tests.runtime.published import publish

__all__ = ["make"]


@pytest.mark.parametrize("how", ["closed", "a folder", "a pipe", "too large"])
def test_events_that_cannot_be_read_hold_up_nothing(
    make: Callable[[str], Shared], how: str
) -> None:
    """In a ledger of its own a run goes on without them."""

    def spoil(desk: Shared) -> None:
        (run_dir,) = desk.settings.home.runs.iterdir()
        events = RunDir(run_dir).attempt(1).events
        if how == "too large":
            os.truncate(events, MAX_LINES_FILE_BYTES + 1)
            return
        events.unlink()
        {"a folder": events.mkdir, "a pipe": lambda: os.mkfifo(events)}.get(
            how, lambda: events.symlink_to(events)
        )()

    honest = story(make("honest"), nothing, is_held=False, ends_before=True)
    assert story(make("told"), spoil, is_held=False, ends_before=True) == honest


def test_a_lost_journal_takes_no_rows_along(make: Callable[[str], Shared]) -> None:
    desk = make("told")
    launched = desk.begin()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=5)
    desk.look()
    before = [desk.read("run", "journal"), desk.read("attempt", "journal")]
    RunDir(launched.run_dir).journal.unlink()
    for _ in range(3):
        desk.clock.advance(60 * MINUTE)
        report = desk.tick()
        assert report.sent == {}
        assert "journal" in report.problems[launched.run_id]
    assert [desk.read("run", "journal"), desk.read("attempt", "journal")] == before
    assert not RunDir(launched.run_dir).journal.exists()


def _preempted_four_times(desk: Shared) -> tuple[RunDir, str]:
    launched = desk.launch()
    for number in range(1, 5):
        desk.look()
        desk.clock.advance(5 * MINUTE)
        desk.look()
        desk.end(desk.alive()[0], "PREEMPTED", checkpoint=number * 100)
        desk.look()
        desk.clock.advance(MINUTE)
        if number < 4:
            assert list(desk.tick().sent) == [launched.run_id]
    return RunDir(launched.run_dir), launched.run_id


@pytest.mark.parametrize("purged", [[1, 2, 3, 4], [1], [4], [2, 3, 4]])
def test_a_purge_of_old_events_stops_no_run(
    make: Callable[[str], Shared], purged: list[int]
) -> None:
    desk = make("told")
    run_dir, run_id = _preempted_four_times(desk)
    saved = [each.train_step for each in desk.seen(run_id).checkpoints]
    for number in purged:
        run_dir.attempt(number).events.unlink()
    sent = []
    for _ in range(3):
        sent += list(desk.tick().sent)
        desk.clock.advance(MINUTE)
    assert sent == [run_id]
    assert (
        [each.train_step for each in desk.seen(run_id).checkpoints] == saved == [100, 200, 300, 400]
    )


def _no_checkpoint(desk: Shared) -> None:
    desk.write("attempt", report={})


def _another_cause(desk: Shared) -> None:
    desk.write("attempt", cause="failed")


@pytest.mark.parametrize(
    "falsify", [_no_checkpoint, _another_cause, nonsense_in_the_report, nonsense]
)
def test_a_row_and_a_purge_of_events_together_stop_no_run(
    make: Callable[[str], Shared], falsify: Callable[[Shared], None]
) -> None:
    """The checkpoint on scratch says which attempt made it."""
    desk = make("told")
    run_dir, desk.run_id = _preempted_four_times(desk)
    for number in range(1, 5):
        run_dir.attempt(number).events.unlink()
    facts = {"run_id": desk.run_id, "attempt": 4, "world_size": 1}
    publish(run_dir.checkpoints, 400, FILES, **facts)
    falsify(desk)
    sent = []
    for _ in range(4):
        sent += list(desk.tick().sent)
        desk.clock.advance(MINUTE)
    assert sent == [desk.run_id]
    for _ in range(3):  # what it brings no more counts as before
        desk.look()
        desk.end(desk.alive()[0], "PREEMPTED")
        desk.look()
        desk.clock.advance(MINUTE)
        sent += list(desk.tick().sent)
    assert sent == 3 * [desk.run_id]
    assert desk.seen(desk.run_id).run.next_action == "stop: no_progress"


def test_nonsense_in_the_place_of_purged_events_is_rebuilt(make: Callable[[str], Shared]) -> None:
    desk = make("told")
    run_dir, desk.run_id = _preempted_four_times(desk)
    run_dir.attempt(1).events.unlink()
    with desk.ledger() as ledger:
        sql = "UPDATE attempt SET report = ? WHERE run_id = ? AND attempt = 1"
        ledger.connection().execute(sql, [json.dumps({"saved": 100, "metrics": 3}), desk.run_id])
    sent = []
    for _ in range(3):
        sent += list(desk.tick().sent)
        desk.clock.advance(MINUTE)
    assert sent == [desk.run_id]


def _rhythm(desk: Shared) -> dict[str, Any]:
    return {"started_at": desk.now(), "rhythm": {"gaps": {"0": 10**6}, "longest_s": 0.1}}


@pytest.mark.parametrize(
    "forge",
    [lambda desk: {"started_at": desk.now(), "exited_at": desk.now(), "exit_code": 1}, _rhythm],
    ids=["exited", "rhythm"],
)
def test_a_row_does_not_stand_for_the_missing_events_of_a_job_that_runs(
    make: Callable[[str], Shared], forge: Callable[[Shared], dict[str, Any]]
) -> None:
    def missing(desk: Shared) -> None:
        (run_dir,) = desk.settings.home.runs.iterdir()
        RunDir(run_dir).attempt(1).events.unlink()

    def forged(desk: Shared) -> None:
        missing(desk)
        desk.write("attempt", report=forge(desk))

    honest = story(make("honest"), missing, is_held=False, ends_before=False)
    assert story(make("told"), forged, is_held=False, ends_before=False) == honest


def test_to_compare_a_run_takes_none_of_its_progress(
    make: Callable[[str], Shared], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make("told")
    launched = desk.begin("{}")
    for step in range(2, 500):
        desk.event(launched, "progress", train_step=step, metrics={"loss": 1.0})
    desk.look()
    parsed = 0

    def counted(line: bytes) -> dict[str, Any] | None:
        nonlocal parsed
        parsed += 1
        return parse_event(line)

    monkeypatch.setattr("hpcflow.ledger.fold.parse_event", counted)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=500)
    sent = []
    for _ in range(3):
        desk.clock.advance(MINUTE)
        sent += list(desk.tick().sent)
    assert sent == [launched.run_id]
    assert 0 < parsed < 50


def test_a_look_compares_a_run_once(
    make: Callable[[str], Shared], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make("told")
    monkeypatch.setattr(desk.slurm, "accounting", lambda *_, **__: [])
    _preempted_four_times(desk)
    desk.clock.advance(60 * MINUTE)
    compared = []

    def counted(run_dir: RunDir, known: Known, **how: Any) -> Known:
        compared.append(run_dir)
        return read_known(run_dir, known, **how)

    monkeypatch.setattr("hpcflow.observe.by_files.read_known", counted)
    desk.look()
    assert len(compared) == 1
