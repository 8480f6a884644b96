"""Whatever lies, is lost or jumps: no attempt is cancelled for a silence that was none."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import SchedulerUnavailable, StorageError
from hpcflow.ledger.store import open_ledger
from hpcflow.model.state import Cause
from hpcflow.projection import rebuild
from hpcflow.requeue.stalls import checking as stalls
from hpcflow.requeue.stalls.checking import NOTICE_WORD
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage import journal
from hpcflow.storage.layout import AttemptDir
from hpcflow.storage.runs import list_runs
from tests.requeue.killing import Killed
from tests.requeue.training import MINUTE, Training
from tests.sampled import crossed


@pytest.fixture
def desk(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_a_cancel_that_never_came_to_slurm_is_withdrawn_from_who_goes_on(
    desk: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_: object) -> None:
        raise SchedulerUnavailable("Socket timed out")

    launched = desk.launch()
    desk.trains(launched, 20)
    desk.waits(31)
    with monkeypatch.context() as broken:
        broken.setattr(desk.slurm, "cancel", down)
        assert desk.waits(3) == ["cancel"], "journaled once, tried at each look"
        done = []
        for train_step in range(21, 27):
            desk.event(launched, "progress", train_step=train_step, metrics={})
            done.append(desk.waits(1))
    assert done == [[], [], [], ["withdraw"], [], []], "once it cannot be under way any more"
    assert len(desk.alive()) == 1
    assert not desk.files(launched).notice.exists()
    desk.slurm.cancel([launched.job_id])  # scancel by hand
    desk.tick()
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.CANCELLED


def _wrote(path: Path, later_s: float) -> None:
    """Its file has a time so much after that of the cancel, by the clock that files have."""
    moment = time.time() + later_s
    os.utime(path, (moment, moment))


@pytest.mark.parametrize("does", ["reports", "prints", "hangs"])
@pytest.mark.parametrize(
    ("raw_state", "cause"), [("CANCELLED by 1000", Cause.CANCELLED), ("FAILED", Cause.FAILED)]
)
def test_who_lived_on_for_hours_after_a_cancel_that_never_came_ended_for_another_reason(
    desk: Training, monkeypatch: pytest.MonkeyPatch, does: str, raw_state: str, cause: Cause
) -> None:
    """Killed between the record and the scancel, and nobody starts the daemon again that day."""

    def killed(_: object) -> None:
        raise Killed

    launched = desk.launch_with(f"{{failures: 0, stall_log: {str(does == 'prints').lower()}}}")
    desk.trains(launched, 20)
    assert desk.waits(31) == ["notice"]
    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(desk.slurm, "cancel", killed)
        desk.waits(5)
    assert desk.acts(launched) == ["notice", "cancel"]
    files, hours_s = desk.files(launched), 30 * 3600.0
    for train_step in range(21, 201):
        desk.clock.advance(hours_s / 180)
        if does == "reports":
            desk.event(launched, "progress", train_step=train_step, metrics={})
    if does == "reports":
        _wrote(files.events, hours_s)
    else:
        died = "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT ... ***\n"
        files.log.write_text("loss 0.1\n" if does == "prints" else died)
        _wrote(files.log, hours_s)
    files.notice.write_text("TERM\n")  # by the job script
    _wrote(files.notice, hours_s)
    desk.end(launched.job_id, raw_state, exit_code=1)
    desk.waits(60)
    assert desk.seen(launched.run_id).attempts[0].cause is cause
    assert desk.alive() == [], "what a person has cancelled is not sent again"


@crossed("wrong, prints, ahead_h", ["Slurm's", "the job's"], [False, True], [-1, 0, 1])
def test_the_last_words_of_who_is_cancelled_do_not_make_the_cancel_somebody_elses(
    desk: Training, monkeypatch: pytest.MonkeyPatch, ahead_h: float, prints: bool, wrong: str
) -> None:
    """Whatever the time is for Slurm; or for the job and its files, even if it is put right just
    then."""
    launched = desk.launch_with(f"{{stall_log: {str(prints).lower()}}}")
    desk.trains(launched, 20)
    assert desk.waits(31) == ["notice"]
    cancel, end = desk.slurm.cancel, desk.slurm.end
    slurm_s, job_s = [3600 * ahead_h * (wrong == each) for each in ("Slurm's", "the job's")]

    def last_words(job_ids: Sequence[str]) -> None:
        desk.event(launched, "progress", train_step=21, metrics={})
        desk.skew_s = job_s
        desk.event(launched, "progress", train_step=22, metrics={})
        desk.event(launched, "checkpoint", train_step=22, path="checkpoints/22", size_bytes=1)
        with desk.files(launched).log.open("a") as log:
            log.write("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT ... ***\n")
        for path in (desk.files(launched).log, desk.files(launched).events):
            _wrote(path, job_s)
        cancel(job_ids)
        desk.clock.advance(-slurm_s)

    def ends(*args: Any, **options: Any) -> None:
        desk.clock.advance(slurm_s)
        end(*args, **options)

    monkeypatch.setattr(desk.slurm, "cancel", last_words)
    monkeypatch.setattr(desk.slurm, "end", ends)
    desk.waits(5)
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.STALLED


def test_a_cancel_that_comes_to_slurm_after_an_hour_is_ours_all_the_same(
    desk: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_: object) -> None:
        raise SchedulerUnavailable("Socket timed out")

    def saves_as_it_dies(job_ids: Sequence[str]) -> None:
        desk.event(launched, "checkpoint", train_step=20, path="checkpoints/20", size_bytes=1)
        cancel(job_ids)

    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(31) == ["notice"]
    cancel = desk.slurm.cancel
    with monkeypatch.context() as broken:
        broken.setattr(desk.slurm, "cancel", down)
        assert 10 <= len(desk.waits(60)) <= 15, "said again every five minutes"
        broken.setattr(desk.slurm, "cancel", saves_as_it_dies)
        desk.waits(1)
    desk.tick()
    (ended,) = desk.seen(launched.run_id).attempts
    assert ended.cause is Cause.STALLED
    assert (ended.rule or "").startswith("no progress for")


def test_a_watch_that_was_lost_after_the_notice_is_no_sign_of_progress(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.waits(31)
    (watch,) = desk.settings.home.watch.iterdir()
    watch.unlink()
    assert desk.waits(31) == []
    assert desk.waits(3) == ["cancel"]
    assert desk.acts(launched) == ["notice", "cancel"]


@pytest.mark.parametrize("skew_s", [-3600.0, 3600.0, 1e9])
def test_the_clock_of_the_job_does_not_matter(desk: Training, skew_s: float) -> None:
    launched = desk.launch()
    desk.skew_s = skew_s
    desk.trains(launched, 20)
    assert desk.waits(29) == []
    assert desk.waits(2) == ["notice"]


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_our_own_clock_may_jump_and_nothing_is_cancelled_too_soon(
    desk: Training, jump_s: float
) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.waits(5)
    desk.clock.advance(jump_s)
    assert desk.waits(19) == []
    desk.clock.advance(-jump_s)
    assert desk.waits(1) == []
    assert desk.waits(10)[:1] == ["notice"]


@pytest.mark.parametrize("skew_s", [-300.0, 300.0])
def test_two_login_nodes_whose_clocks_differ_take_turns(desk: Training, skew_s: float) -> None:
    """As from cron on both. The silence is that of one clock, neither twice as long nor none."""
    launched = desk.launch()
    desk.trains(launched, 20)
    done = []
    for minute in range(1, 40):
        desk.host = f"login{1 + minute % 2}"
        desk.clock.advance(MINUTE + (skew_s if minute % 2 else -skew_s))
        done += [(minute, verdict.act.value) for verdict in desk.tick().stalls.values()]
    assert [act for _, act in done] == ["notice", "cancel"]
    noticed, cancelled = (minute for minute, _ in done)
    assert 30 <= noticed <= 33
    assert 2 <= cancelled - noticed <= 4


@pytest.mark.parametrize("dies", ["never", "before", "after"])
def test_a_notice_of_one_login_node_is_given_its_time_by_the_other_too(
    desk: Training, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """Each looks every five minutes, the second one a minute before the first."""

    def down(*_: object) -> None:
        raise SchedulerUnavailable("Socket timed out")

    def is_killed(files: AttemptDir) -> None:
        if dies == "after":
            files.notice.write_text(NOTICE_WORD)
        raise Killed

    launched = desk.launch()
    desk.trains(launched, 1)
    told_at = cancelled_at = None
    for minute in range(1, 90):
        desk.clock.advance(MINUTE)
        if minute % 5 not in (0, 4):
            continue
        desk.host = "login1" if minute % 5 == 0 else "login2"
        with monkeypatch.context() as broken:
            if told_at is None and desk.host == "login1":
                broken.setattr(stalls._Look, "_running_job", down)
            elif dies != "never" and desk.acts(launched) == []:
                broken.setattr(stalls, "_give_notice", is_killed)
            with suppress(Killed):
                desk.tick()
        if told_at is None and desk.files(launched).notice.exists():
            told_at = minute
            assert desk.host == "login2"
        if desk.acts(launched) == ["notice", "cancel"]:
            cancelled_at = minute
            break
    assert told_at is not None
    assert cancelled_at is not None
    assert 2 <= cancelled_at - told_at <= 10


def test_a_weekend_without_a_daemon_is_no_stall(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.clock.advance(48 * 3600)
    assert desk.waits(20) == []
    assert desk.waits(20)[:1] == ["notice"]


def test_a_ledger_that_was_rebuilt_and_a_watch_that_was_lost_end_nothing_too_soon(
    desk: Training,
) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.waits(25)
    with open_ledger(desk.settings.ledger_url) as ledger:
        before = ledger.known([launched.run_id])
        rebuild(ledger, list_runs(desk.settings.home))
        assert ledger.known([launched.run_id]) == before
    assert desk.waits(2) == []
    (watch,) = desk.settings.home.watch.iterdir()
    watch.write_text('{"format": 1, "at": ')
    assert desk.waits(29) == []
    assert desk.waits(3) == ["notice"]


def test_events_that_were_cut_or_lost_end_nothing(desk: Training) -> None:
    """A purge, or a full scratch: nobody knows whether it moves."""
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.files(launched).events.unlink()
    for _ in range(60):
        desk.clock.advance(MINUTE)
        report = desk.tick()
        assert report.stalls == {}
    assert "the progress is unknown" in report.problems[launched.run_id]
    desk.clock.advance(10)
    assert desk.tick().problems == report.problems, "what lasts is not said again at each look"


@pytest.mark.parametrize("had_notice", [False, True])
def test_what_a_full_scratch_has_swallowed_is_no_silence(
    desk: Training, monkeypatch: pytest.MonkeyPatch, had_notice: bool
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("No space left on device")

    launched = desk.launch()
    desk.trains(launched, 20)
    if had_notice:
        assert desk.waits(30) == ["notice"]
    with monkeypatch.context() as broken:
        broken.setattr(journal, "append_all", full)
        assert desk.waits(67, each_min=1) == []
    assert desk.waits(20) == [], "it is free again, and the job goes on"
    desk.event(launched, "progress", train_step=21, metrics={})
    assert desk.waits(29) == (["withdraw"] if had_notice else [])


def test_while_slurm_is_silent_nothing_is_done(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.slurm.is_controller_down = True
    assert desk.waits(60) == []
    desk.slurm.set_raw_state(launched.job_id, "SUSPENDED")
    desk.slurm.is_controller_down = False
    assert desk.waits(10) == []


def test_a_site_that_is_silent_is_asked_once_in_a_look(
    desk: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [desk.launch() for _ in range(4)]
    for each in runs:
        desk.trains(each, 1)
    desk.waits(20)
    asked = []

    def down(job_ids: Sequence[str] = ()) -> list[JobInfo]:
        asked.append(job_ids)
        raise SchedulerUnavailable("Socket timed out")

    monkeypatch.setattr(desk.slurm, "queue", down)
    desk.waits(15)
    asked.clear()
    desk.waits(1)
    assert len(asked) == 1, "for what became of the jobs; no act asks again"


def test_runs_that_cannot_be_taken_under_watch_keep_no_other_from_it(
    desk: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come behind the others, and in turn."""
    monkeypatch.setattr(stalls, "_NEW_AT_ONCE", 2)
    runs = sorted((desk.launch() for _ in range(8)), key=lambda each: each.run_id)
    broken, whole = runs[:5], runs[5:]
    for each in runs:
        desk.trains(each, 1)
    for watch in desk.settings.home.watch.iterdir():
        watch.unlink()
    for each in broken:
        desk.dir_of(each).run_json.rename(each.run_dir / "elsewhere")
    assert desk.waits(35, each_min=1).count("notice") == len(whole)
    assert set(desk.tick().problems) == {each.run_id for each in broken}, "said at every round"
    mended = broken[2]
    (mended.run_dir / "elsewhere").rename(desk.dir_of(mended).run_json)
    assert desk.waits(35, each_min=1).count("notice") == 1
    assert desk.acts(mended) == ["notice", "cancel"]


@pytest.mark.parametrize(
    "said",
    [
        {"journal": {"stall": {"action": "boom", "silent_s": 1}}},
        {"journal": {"stall": {"action": "notice", "silent_s": []}}},
        {"journal": {"stall": "boom"}},
        {"report": {"rhythm": 5}},
        {"report": {"rhythm": {"signs": "many"}}},
        {"report": {"rhythm": {"has_begun": True, "gaps": {"0": "x"}}}},
    ],
)
def test_rows_that_say_what_nobody_can_use_are_a_trouble_of_their_run(
    desk: Training, said: dict[str, dict[str, Any]]
) -> None:
    """Somebody else may write into a ledger that several people share."""
    launched, other = desk.launch(), desk.launch()
    desk.trains(launched, 1)
    desk.trains(other, 1)
    for watch in desk.settings.home.watch.iterdir():
        watch.unlink()
    ((column, what),) = said.items()
    with sqlite3.connect(desk.settings.home.ledger) as ledger:
        find = f"SELECT {column} FROM attempt WHERE run_id = ?"
        (text,) = ledger.execute(find, [launched.run_id]).fetchone()
        new = json.dumps({**json.loads(text), **what})
        write = f"UPDATE attempt SET {column} = ? WHERE run_id = ?"
        ledger.execute(write, [new, launched.run_id])
    assert desk.waits(35) == ["notice", "cancel"]
    assert desk.acts(other) == ["notice", "cancel"]
    assert set(desk.tick().problems) == {launched.run_id}


def test_whoever_was_never_told_is_not_cancelled_for_not_leaving(
    desk: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the record and the notice, and the next daemon comes an hour later."""

    def killed(_: AttemptDir) -> None:
        raise Killed

    launched = desk.launch()
    desk.trains(launched, 20)
    desk.waits(29)
    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(stalls, "_give_notice", killed)
        desk.waits(1)
    assert desk.acts(launched) == ["notice"]
    desk.clock.advance(3600)
    assert desk.waits(1) == []
    assert desk.files(launched).notice.exists()
    desk.files(launched).notice.unlink()  # by the program: it is not told twice
    assert desk.waits(1) == []
    assert desk.waits(2) == ["cancel"]
