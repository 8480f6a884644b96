"""What runs when a hard budget is reached: it may finish, or is told to save and leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from hpcflow.budgets.records import OnExceeded
from hpcflow.cli.output import next_words
from hpcflow.launch import standby
from hpcflow.model.journal import CancelRequested, Ended, Overspent
from hpcflow.model.state import Cause
from hpcflow.requeue import overspent
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock, submit_lock
from tests.budgets.desk import BudgetDesk
from tests.requeue.killing import Killer
from tests.requeue.standbys import begins
from tests.run_dirs import run_dir_at

SAVE = OnExceeded.SAVE_AND_STOP


@pytest.fixture
def desk(tmp_path: Path) -> BudgetDesk:
    return BudgetDesk(tmp_path)


def notices(run_dir: Path) -> list[str]:
    records = journal.read(run_dir_at(run_dir))
    return [each.why for each in records if isinstance(each, Overspent)]


def test_by_default_what_runs_may_finish(desk: BudgetDesk) -> None:
    launched = desk.launch()
    desk.tick()
    desk.clock.advance(900)
    desk.set(hard="1")
    assert desk.tick().overspent == {}
    assert not desk.dir_of(launched).attempt(1).notice.exists()


def test_it_saves_and_leaves_and_goes_on_once_the_budget_was_raised(desk: BudgetDesk) -> None:
    launched = desk.launch()
    desk.tick()
    desk.clock.advance(300)
    desk.set(hard="1", on_exceeded=SAVE)
    assert desk.tick().overspent == {}, "half a dollar so far"
    desk.clock.advance(300)
    why = "budget project:vision of 1.00 USD is reached"
    assert desk.tick().overspent == {launched.run_id: why}
    assert desk.dir_of(launched).attempt(1).notice.read_text() == "budget\n"
    assert next_words(desk.seen(launched.run_id).run) == f"notice: {why}"
    desk.clock.advance(10)
    assert desk.tick().overspent == {}, "once"
    desk.end(launched.job_id, "FAILED", checkpoint=100, exit_code=75)
    desk.tick()
    desk.clock.advance(60)
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert seen.attempts[0].cause is Cause.CHECKPOINTED
    assert (
        next_words(seen.run) == "wait: budget project:vision of 1.00 USD has no room for 3.00 USD"
    )
    assert notices(launched.run_dir) == [why]
    desk.set(hard="10")
    desk.clock.advance(60)
    assert list(desk.tick().sent) == [launched.run_id]
    desk.assert_rebuilt_alike(launched.run_id)


@pytest.mark.parametrize("name", ["project/aaa.jsonl", "project/zzz.jsonl", "sweep", "user"])
def test_a_bad_file_of_another_budget_keeps_none_from_being_enforced(
    desk: BudgetDesk, name: str
) -> None:
    launched = desk.launch()
    desk.tick()
    desk.clock.advance(900)
    desk.set(hard="1", on_exceeded=SAVE)
    os.mkfifo(desk.budgets.path / name)
    assert list(desk.tick().overspent) == [launched.run_id]


def test_the_standby_of_such_a_run_does_not_go_on(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    desk.slurm._starts_at_once = False
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    begins(desk, launched, 1, launched.job_id)
    waiting = desk.tick().standbys[launched.run_id]
    desk.clock.advance(900)
    desk.set(hard="1", on_exceeded=SAVE)
    assert list(desk.tick().overspent) == [launched.run_id]
    assert desk.alive() == [launched.job_id]
    assert desk.dir_of(launched).attempt(2).claim.read_text() != waiting
    assert desk.tick().standbys == {}


def test_whoever_is_killed_over_a_notice_has_it_given_by_the_next(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(monkeypatch)
    killer.watch(journal, "append_all")
    killer.watch(overspent, "write_new")
    killer.watch(standby, "discard")
    for moment in count(1):
        launched = desk.launch()
        desk.tick()
        desk.clock.advance(900)
        desk.set(f"run:{launched.run_id}", hard="1", on_exceeded=SAVE)
        killer.aim_at(moment)
        with killer.armed():
            desk.tick()
        desk.tick()
        assert desk.dir_of(launched).attempt(1).notice.exists(), f"killed at {moment}"
        assert notices(launched.run_dir)
        desk.cancel(desk.dir_of(launched))
        if not killer.has_struck:
            break
    assert moment > 4


def test_whoever_wants_to_cancel_it_needs_no_notice(desk: BudgetDesk) -> None:
    launched = desk.launch()
    desk.tick()
    desk.clock.advance(900)
    desk.set(hard="1", on_exceeded=SAVE)
    request = CancelRequested(at=desk.clock.now(), by="ada")
    journal.append(desk.dir_of(launched), request)  # and Slurm has not answered yet
    assert desk.tick().overspent == {}
    assert notices(launched.run_dir) == []


def test_what_has_ended_at_this_moment_is_told_nothing(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = desk.launch()
    desk.tick()
    desk.clock.advance(900)
    desk.set(hard="1", on_exceeded=SAVE)

    @contextmanager
    def behind_another(run_dir: RunDir, *, wait_s: float) -> Iterator[HeldLock]:
        with submit_lock(run_dir, wait_s=wait_s) as held:
            ended = Ended(
                at=desk.clock.now(),
                attempt=1,
                cause=Cause.COMPLETED,
                raw_state="COMPLETED",
                ended_at=desk.clock.now(),
                rule="another daemon",
            )
            journal.append(run_dir, ended)
            yield held

    monkeypatch.setattr(overspent, "submit_lock", behind_another)
    assert desk.tick().overspent == {}
    assert notices(launched.run_dir) == []
    assert not desk.dir_of(launched).attempt(1).notice.exists()
