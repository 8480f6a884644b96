"""A job that is cancelled before its script starts: by its owner, or because a node failed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.model.journal import Accounted, Ended
from hpcflow.model.state import Cause
from hpcflow.storage import journal
from tests.requeue.restarts import causes, claim
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize("is_node_free", [True, False])
@pytest.mark.parametrize("is_seen_before", [True, False])
def test_a_job_that_its_node_could_not_start_is_sent_again(
    desk: Watched, is_seen_before: bool, is_node_free: bool
) -> None:
    """Slurm calls it CANCELLED, and counts a restart that did not happen."""
    desk.config.write_text(desk.config.read_text() + "retry: {backoff: 1s}\n")
    launched = desk.launch()
    if is_seen_before:
        desk.look()
    desk.clock.advance(10)
    desk.slurm.fail_launch(launched.job_id, is_node_free=is_node_free)
    desk.look()
    desk.clock.advance(60)
    assert list(desk.tick().sent) == [launched.run_id]
    desk.clock.advance(60)
    desk.tick()
    assert causes(desk.seen(launched.run_id)) == [Cause.LAUNCH_FAILED, None]
    written = journal.read(desk.dir_of(launched))
    (ended,) = (each for each in written if isinstance(each, Ended))
    assert ended.rule == "queue says CANCELLED: its node could not start the script"
    (bill,) = (each for each in written if isinstance(each, Accounted))
    assert (bill.attempt, float(bill.elapsed_s)) == (1, 10)


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of hpcflow is not root, of whom ``CANCELLED by 0`` proves nothing."""
    monkeypatch.setattr("hpcflow.reconcile.launch_failures._is_root", lambda: False)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("trouble", ["", "forgets_records", "is_accounting_down"])
@pytest.mark.parametrize("is_requeued", [False, True])
def test_a_run_whose_prolog_failed_is_resubmitted(
    desk: Watched, trouble: str, is_requeued: bool
) -> None:
    """slurmd cancels the job as root, because hpcflow submits with ``--no-requeue``."""
    desk.config.write_text(desk.config.read_text() + "retry: {backoff: 1s}\n")
    launched = desk.launch()
    if is_requeued:
        desk.look()
        desk.clock.advance(10)
        desk.slurm.requeue(launched.job_id)
        desk.clock.advance(10)
        desk.slurm.start(launched.job_id)
    before = [Cause.REQUEUED] if is_requeued else []
    desk.look()
    desk.clock.advance(10)
    desk.slurm.end(launched.job_id, "CANCELLED by 0")
    if trouble:
        setattr(desk.slurm, trouble, True)
        assert causes(desk.seen(launched.run_id)) == [*before, None]
        desk.clock.advance(100)
        assert causes(desk.seen(launched.run_id)) == [*before, None]
        setattr(desk.slurm, trouble, False)
        desk.clock.advance(60)
    desk.look()
    desk.clock.advance(60)
    assert list(desk.tick().sent) == [launched.run_id]
    assert causes(desk.seen(launched.run_id)) == [*before, Cause.LAUNCH_FAILED, None]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("trouble", ["", "forgets_records", "is_accounting_down"])
def test_a_job_that_an_overloaded_node_cancels_seconds_later_is_sent_again(
    desk: Watched, trouble: str
) -> None:
    """As 25 of 300 jobs that were sent to a node whose 300 jobs had just been preempted."""
    launched = desk.launch()
    desk.look()
    desk.clock.advance(10)
    desk.slurm.requeue(launched.job_id, "NODE_FAIL")
    desk.clock.advance(3)
    desk.slurm.end(launched.job_id, "CANCELLED by 0")
    if trouble:
        setattr(desk.slurm, trouble, True)
        assert causes(desk.seen(launched.run_id)) == [None]
        desk.clock.advance(100)
        assert causes(desk.seen(launched.run_id)) == [None]
        setattr(desk.slurm, trouble, False)
        desk.clock.advance(60)
    desk.look()
    desk.clock.advance(120)
    assert list(desk.tick().sent) == [launched.run_id]
    assert causes(desk.seen(launched.run_id))[0] is Cause.LAUNCH_FAILED


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(("by", "after_s"), [("1000", 3), ("0", 90)])
def test_who_cancels_a_restarted_job_that_waits_has_cancelled_it(
    desk: Watched, by: str, after_s: int
) -> None:
    launched = desk.launch()
    desk.look()
    desk.clock.advance(10)
    desk.slurm.requeue(launched.job_id, "NODE_FAIL")
    desk.clock.advance(after_s)
    desk.slurm.end(launched.job_id, f"CANCELLED by {by}")
    desk.look()
    desk.clock.advance(120)
    assert desk.tick().sent == {}
    assert causes(desk.seen(launched.run_id)) == [Cause.NODE_FAIL, Cause.CANCELLED]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("trouble", ["", "forgets_records", "is_accounting_down"])
def test_a_job_that_its_owner_cancelled_stays_cancelled(desk: Watched, trouble: str) -> None:
    """Also before its script wrote anything, and if accounting never says who did."""
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, "CANCELLED by 1000")
    if trouble:
        setattr(desk.slurm, trouble, True)
        assert causes(desk.seen(launched.run_id)) == [None]
        assert desk.seen(launched.run_id).attempts[-1].state == "completing"
    desk.clock.advance(200)
    assert desk.tick().sent == {}
    desk.slurm.is_accounting_down = False
    desk.clock.advance(200)
    assert desk.tick().sent == {}
    assert causes(desk.seen(launched.run_id)) == [Cause.CANCELLED]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("every_s", [60, 300, 400])
def test_a_job_that_was_cancelled_and_is_forgotten_has_not_vanished(
    desk: Watched, every_s: int
) -> None:
    """Slurm forgets it after 300 s, and accounting answers, but has no record of it."""
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, "CANCELLED by 1000")
    desk.slurm.forgets_records = True
    for _ in range(1500 // every_s):
        desk.look()
        assert desk.tick().sent == {}
        desk.clock.advance(every_s)
    assert causes(desk.seen(launched.run_id)) == [Cause.CANCELLED]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("by", ["0", "1000"])
def test_accounting_may_be_away_for_hours_when_a_prolog_fails(desk: Watched, by: str) -> None:
    """The queue has forgotten the job meanwhile."""
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, f"CANCELLED by {by}")
    desk.slurm.is_accounting_down = True
    for _ in range(24):
        assert desk.tick().sent == {}
        desk.clock.advance(300)
    desk.slurm.is_accounting_down = False
    desk.clock.advance(300)
    desk.look()
    cause = Cause.LAUNCH_FAILED if by == "0" else Cause.CANCELLED
    assert causes(desk.seen(launched.run_id))[0] == cause


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("is_asked", [False, True])
def test_accounting_that_never_answers_does_not_hold_a_cancelled_job_for_ever(
    desk: Watched, is_asked: bool
) -> None:
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, "CANCELLED by 1000")
    desk.slurm.is_accounting_down = True
    desk.look()
    for _ in range(1 if is_asked else 11):
        desk.clock.advance(3600)
        assert causes(desk.seen(launched.run_id)) == [None]
    if is_asked:
        desk.cancel(desk.dir_of(launched))
    desk.clock.advance(3600)
    assert desk.tick().sent == {}
    assert causes(desk.seen(launched.run_id)) == [Cause.CANCELLED]


@pytest.mark.usefixtures("as_user")
def test_a_clock_that_is_ahead_does_not_shorten_the_wait_for_accounting(desk: Watched) -> None:
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, "CANCELLED by 0")
    desk.slurm.forgets_records = True
    desk.clock.advance(200)
    assert causes(desk.seen(launched.run_id)) == [None]
    desk.slurm.forgets_records = False
    desk.clock.advance(60)
    assert causes(desk.seen(launched.run_id)) == [Cause.LAUNCH_FAILED]


@pytest.mark.usefixtures("as_user")
def test_accounting_is_not_asked_who_cancelled_a_job_whose_script_started(desk: Watched) -> None:
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.look()
    desk.slurm.end(launched.job_id, "CANCELLED by 1000")
    desk.slurm.calls.clear()
    desk.look()
    assert "accounting" not in desk.slurm.calls
    assert causes(desk.seen(launched.run_id)) == [Cause.CANCELLED]


def test_without_accounting_a_cancelled_job_is_not_waited_for(desk: Watched) -> None:
    desk.site = desk.site.model_copy(update={"has_accounting": False})
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, "CANCELLED by 1000")
    assert causes(desk.seen(launched.run_id)) == [Cause.CANCELLED]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("sign", ["claim", "events.jsonl"])
def test_a_job_that_root_cancelled_after_its_script_started_stays_cancelled(
    desk: Watched, sign: str
) -> None:
    launched = desk.launch()
    desk.look()
    path = desk.dir_of(launched).attempt(1).path / sign
    path.write_text(launched.job_id if sign == "claim" else "{}\n")
    desk.slurm.end(launched.job_id, "CANCELLED by 0")
    desk.look()
    desk.clock.advance(60)
    assert desk.tick().sent == {}
    assert causes(desk.seen(launched.run_id)) == [Cause.CANCELLED]


def test_root_cancels_a_job_of_its_own(desk: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcflow.reconcile.launch_failures._is_root", lambda: True)
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, "CANCELLED by 0")
    desk.look()
    assert desk.tick().sent == {}
    assert causes(desk.seen(launched.run_id)) == [Cause.CANCELLED]


def test_who_cancels_a_job_that_was_restarted_or_has_begun_has_cancelled_it(desk: Watched) -> None:
    restarted_one, begun = desk.launch(), desk.launch()
    desk.look()
    desk.clock.advance(1)
    desk.slurm.requeue(restarted_one.job_id)
    desk.clock.advance(10)
    desk.slurm.start(restarted_one.job_id)
    desk.slurm.cancel([restarted_one.job_id])
    claim(desk, begun, 1, begun.job_id)
    desk.slurm.fail_launch(begun.job_id)
    assert desk.tick().sent == {}
    assert causes(desk.seen(restarted_one.run_id)) == [Cause.REQUEUED, Cause.CANCELLED]
    assert causes(desk.seen(begun.run_id))[-1] is Cause.CANCELLED
