"""Slurm or an admin restarts a job under its own id: an attempt of its own, and no time is lost."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Accounted, BeginLifted, Stall
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.requeue.history import history
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage import journal
from hpcflow.testing.fake_cluster import REQUEUE_WAIT
from tests.requeue.restarts import causes, claim, jobs, lose_from_queue, restarted, tell_restarts
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize("raw_state", ["FAILED", "CANCELLED by 0"])
def test_a_run_at_rest_goes_on_when_its_job_is_restarted_though_it_is_the_only_one(
    desk: Watched, raw_state: str
) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {failures: 0}\n")
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.clock.advance(600)
    desk.end(launched.job_id, raw_state, exit_code=1, checkpoint=5)
    desk.tick()
    assert desk.seen(launched.run_id).run.state.is_final
    desk.slurm.requeue(launched.job_id)
    desk.clock.advance(10)
    desk.tick()
    claim(desk, launched, 2, launched.job_id)
    assert desk.seen(launched.run_id).run.state is RunState.RUNNING
    desk.end(launched.job_id, "PREEMPTED", checkpoint=10)
    assert list(desk.tick().sent) == [launched.run_id]


def test_a_requeue_by_an_admin_is_the_next_attempt_and_starts_at_once(desk: Watched) -> None:
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.clock.advance(600)
    desk.slurm.requeue(launched.job_id)
    desk.clock.advance(5)
    report = desk.tick()
    assert report.lifted == {launched.run_id: launched.job_id}
    assert report.sent == {}
    claim(desk, launched, 2, launched.job_id)
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.RUNNING
    assert causes(seen) == [Cause.REQUEUED, None]
    assert jobs(seen) == [launched.job_id] * 2
    first, second = seen.attempts
    assert first.raw_state == "REQUEUED"
    assert first.started_at is not None
    assert first.ended_at == first.started_at + timedelta(seconds=600)
    assert second.submitted_at == first.ended_at
    assert second.started_at == first.ended_at + timedelta(seconds=5), "not after two minutes"
    assert desk.tick().lifted == {}
    desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.COMPLETED
    assert causes(seen) == [Cause.REQUEUED, Cause.COMPLETED]
    desk.assert_rebuilt_alike(launched.run_id)
    with open_ledger(desk.settings.ledger_url) as ledger:
        rows = ledger.known([launched.run_id])[launched.run_id].attempts
    story = history(rows, journal.read(desk.dir_of(launched)))
    first_chapter, second_chapter = story.chapters
    assert (first_chapter.how, second_chapter.how) == ("sbatch", "restarted")
    assert [(each.kind, each.attempt) for each in story.entries] == [("begin_lifted", 2)]
    assert (first_chapter.ran_s, second_chapter.waited_s) == (600, 5)


def test_five_restarts_are_six_attempts_and_cost_no_budget(desk: Watched) -> None:
    launched = desk.launch()
    for number in range(1, 6):
        claim(desk, launched, number, launched.job_id)
        desk.tick()
        desk.clock.advance(100)
        desk.slurm.requeue(launched.job_id)
        desk.tick()
    claim(desk, launched, 6, launched.job_id)
    desk.clock.advance(100)
    desk.end(launched.job_id, "FAILED", exit_code=1, checkpoint=100)
    assert desk.tick().decisions[launched.run_id].rule == "backoff"
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [*[Cause.REQUEUED] * 5, Cause.FAILED]
    ran = [a.ended_at - a.started_at for a in seen.attempts if a.ended_at and a.started_at]
    assert ran == [timedelta(seconds=100)] * 6
    desk.clock.advance(3600)
    sent = desk.tick().sent
    assert sent[launched.run_id] != launched.job_id
    assert len(desk.seen(launched.run_id).attempts) == 7
    desk.assert_rebuilt_alike(launched.run_id)


@pytest.mark.parametrize(
    ("raw_state", "cause"), [("PREEMPTED", Cause.PREEMPTED), ("NODE_FAIL", Cause.NODE_FAIL)]
)
def test_why_slurm_restarted_it_is_known_from_accounting(
    desk: Watched, raw_state: str, cause: Cause
) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.requeue(launched.job_id, raw_state)
    desk.tick()
    assert causes(desk.seen(launched.run_id)) == [cause, None]


def test_without_accounting_it_is_seen_all_the_same(desk: Watched) -> None:
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.slurm.is_accounting_down = True
    desk.clock.advance(60)
    desk.slurm.requeue(launched.job_id)
    report = desk.tick()
    assert report.lifted
    first, second = desk.seen(launched.run_id).attempts
    assert (first.cause, second.state) == (Cause.REQUEUED, AttemptState.RUNNING)
    assert first.ended_at == desk.clock.now()


def test_accounting_is_asked_once_for_a_restart_and_the_queue_once_a_tick(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    desk.slurm.calls.clear()
    desk.tick()
    assert desk.slurm.calls == ["queue", "accounting", "start_now"]
    desk.slurm.calls.clear()
    for _ in range(3):
        desk.tick()
    assert desk.slurm.calls == ["queue"] * 3


def test_where_a_begin_time_may_not_be_changed_it_is_said_once(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.forbids_start_now = True
    desk.slurm.requeue(launched.job_id)
    (warning,) = desk.tick().warnings
    assert "permission denied" in warning
    run_dir = desk.dir_of(launched)
    before = journal.read(run_dir)
    for _ in range(3):
        desk.clock.advance(10)
        assert desk.tick().warnings == []
    after = [each for each in journal.read(run_dir) if not isinstance(each, Accounted)]
    assert after == before
    desk.clock.advance(REQUEUE_WAIT.total_seconds())
    desk.tick()
    assert desk.seen(launched.run_id).run.state is RunState.RUNNING


def test_while_slurm_does_not_answer_the_begin_time_is_tried_again(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    desk.look()
    desk.slurm.is_controller_down = True
    assert desk.tick().lifted == {}
    desk.slurm.is_controller_down = False
    assert desk.tick().lifted == {launched.run_id: launched.job_id}


def test_who_has_lost_the_lease_writes_of_no_further_run(desk: Watched) -> None:
    runs = [desk.launch() for _ in range(3)]
    desk.tick()
    for launched in runs:
        desk.slurm.requeue(launched.job_id)
    desk.look()
    answers = iter([True, True])  # before Slurm is asked, and before the first run
    (lifted,) = desk.tick(may_act=lambda: next(answers, False)).lifted
    lasts = {each.run_id: journal.read(desk.dir_of(each))[-1] for each in runs}
    assert [run_id for run_id, last in lasts.items() if isinstance(last, BeginLifted)] == [lifted]


@pytest.mark.parametrize("delay_s", [1, 6, 121, 601, 86_401])
def test_the_wait_of_the_cluster_is_lifted_and_a_longer_one_is_the_owners(
    desk: Watched, delay_s: int
) -> None:
    """`requeue_delay` or `cred_expire` in slurm.conf says how long Slurm makes a job wait."""
    desk.slurm.requeue_wait = timedelta(seconds=delay_s)
    slurms, owners = desk.launch(), desk.launch()
    desk.tick()
    for launched in (slurms, owners):
        desk.slurm.requeue(launched.job_id)
    chosen = desk.clock.now() + timedelta(seconds=delay_s + 60)
    desk.slurm.begin_at(owners.job_id, chosen)
    lifted = {} if delay_s == 1 else {slurms.run_id: slurms.job_id}
    assert desk.tick().lifted == lifted, "a second is not worth a call"
    desk.slurm.forbids_start_now = True
    report = desk.tick()
    assert (report.lifted, report.warnings) == ({}, [])
    assert desk.seen(owners.run_id).attempts[-1].reason == "BeginTime"


def test_a_wait_that_may_not_be_lifted_is_told_in_its_length(desk: Watched) -> None:
    desk.slurm.requeue_wait = timedelta(minutes=10)
    desk.slurm.forbids_start_now = True
    launched = desk.launch()
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    (warning,) = desk.tick().warnings
    assert "starts after 10m 00s" in warning


@pytest.mark.parametrize(("exit_code", "cause"), [(75, Cause.CHECKPOINTED), (1, Cause.FAILED)])
def test_a_job_that_slurm_holds_for_its_exit_code_has_ended_and_another_takes_its_place(
    desk: Watched, exit_code: int, cause: Cause
) -> None:
    launched_at, launched = desk.clock.now(), desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.clock.advance(600)
    desk.slurm.hold_for_its_exit(launched.job_id, exit_code)
    desk.look()
    (first,) = desk.seen(launched.run_id).attempts
    assert (first.cause, first.exit_code, first.raw_state) == (cause, exit_code, "REQUEUE_HOLD")
    assert first.ended_at == desk.clock.now()
    desk.tick()  # a failure waits for its backoff
    desk.clock.advance(3600)
    desk.tick()
    *_, held = desk.slurm.accounting([launched.job_id], launched_at)
    assert held.raw_state.startswith("CANCELLED")
    for _ in range(3):
        desk.clock.advance(60)
        assert desk.tick().sent == {}
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [cause, None]
    assert len(set(jobs(seen))) == 2
    bills = [each for each in journal.read(desk.dir_of(launched)) if isinstance(each, Accounted)]
    (bill,) = bills
    assert (bill.source, bill.elapsed_s) == ("accounting", Decimal(600))
    desk.assert_rebuilt_alike(launched.run_id)


def test_a_held_job_that_its_owner_releases_is_the_next_attempt(desk: Watched) -> None:
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.slurm.hold_for_its_exit(launched.job_id, 75)
    desk.look()
    desk.slurm.release(launched.job_id)
    assert desk.tick().sent == {}
    claim(desk, launched, 2, launched.job_id)
    seen = desk.seen(launched.run_id)
    assert (jobs(seen), causes(seen)) == ([launched.job_id] * 2, [Cause.CHECKPOINTED, None])


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_run_that_is_cancelled_leaves_no_held_job_behind(desk: Watched, is_seen: bool) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.hold_for_its_exit(launched.job_id, 75)
    if is_seen:
        desk.look()
    desk.cancel(desk.dir_of(launched))
    (held,) = desk.slurm.queue([launched.job_id])
    assert held.raw_state.startswith("CANCELLED")
    assert desk.tick().sent == {}


def test_a_begin_time_that_its_owner_chose_is_left_alone(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.begin_at(launched.job_id, desk.clock.now() + timedelta(minutes=2))
    assert desk.tick().lifted == {}
    desk.clock.advance(121)
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    desk.slurm.begin_at(launched.job_id, desk.clock.now() + timedelta(hours=9))
    assert desk.tick().lifted == {}
    assert desk.seen(launched.run_id).attempts[-1].reason == "BeginTime"


def test_what_an_admin_holds_is_shown_and_neither_touched_nor_sent_again(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    desk.slurm.hold(launched.job_id, "job requeued in held state")
    for _ in range(3):
        report = desk.tick()
        assert (report.sent, report.lifted) == ({}, {})
        desk.clock.advance(3600)
    assert desk.state(launched.run_id) == (RunState.QUEUED, "job requeued in held state")
    assert desk.alive() == [launched.job_id]


def test_what_nobody_watched_is_told_afterwards(desk: Watched) -> None:
    launched = desk.launch()
    for number in (1, 2):
        claim(desk, launched, number, launched.job_id)
        desk.clock.advance(100)
        desk.slurm.requeue(launched.job_id)
        desk.clock.advance(REQUEUE_WAIT.total_seconds())
        desk.slurm.queue()  # Slurm goes on
    progress = {"event": "progress", "train_step": 70, "metrics": {}}
    claim(desk, launched, 3, launched.job_id, progress, {"event": "exited", "exit_code": 0})
    desk.clock.advance(100)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.clock.advance(600)
    assert desk.slurm.queue() == []
    seen = desk.seen(launched.run_id)
    assert (seen.run.state, seen.run.train_step) == (RunState.COMPLETED, 70)
    assert causes(seen) == [Cause.REQUEUED, Cause.REQUEUED, Cause.COMPLETED]
    ran = [a.ended_at - a.started_at for a in seen.attempts if a.ended_at and a.started_at]
    assert ran == [timedelta(seconds=100)] * 3
    desk.assert_rebuilt_alike(launched.run_id)


def test_a_restart_that_left_only_a_claim_is_believed(desk: Watched) -> None:
    """The site has no accounting, and the queue has forgotten the job."""
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.slurm.requeue(launched.job_id)
    desk.slurm.start(launched.job_id)
    claim(desk, launched, 2, launched.job_id, {"event": "exited", "exit_code": 0})
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.slurm.forget(launched.job_id)
    desk.slurm.is_accounting_down = True
    desk.look()
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.REQUEUED, Cause.COMPLETED]
    assert seen.attempts[0].ended_at == desk.clock.now(), "the times of its files lie ahead of that"


@pytest.mark.parametrize("is_recorded", [True, False])
def test_how_a_former_life_ended_says_nothing_about_this_one(
    desk: Watched, monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    """The queue is empty for a moment; accounting knows the new life, or not yet."""
    launched = restarted(desk, "NODE_FAIL")
    if not is_recorded:
        told = desk.slurm._records  # accounting's records

        def ended() -> list[JobInfo]:
            return [each for each in told() if each.state is AttemptState.ENDED]

        monkeypatch.setattr(desk.slurm, "_records", ended)
    lose_from_queue(desk, monkeypatch, 4)
    for _ in range(5):
        assert desk.tick().sent == {}
        desk.clock.advance(30)
    assert causes(desk.seen(launched.run_id)) == [Cause.NODE_FAIL, None]
    assert desk.alive() == [launched.job_id]


@pytest.mark.parametrize("exit_code", [0, 75, 143])
def test_what_it_said_once_the_script_was_told_to_leave_is_no_end(
    desk: Watched, exit_code: int
) -> None:
    """A program without hpcflow's runtime writes no event of its notice; the script's trap does."""
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id, {"event": "exited", "exit_code": exit_code})
    desk.dir_of(launched).attempt(1).notice.write_text("TERM\n")
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    desk.tick()
    assert causes(desk.seen(launched.run_id)) == [Cause.REQUEUED, None]


def test_while_accounting_is_silent_a_restarted_life_that_left_with_zero_is_not_completed(
    desk: Watched,
) -> None:
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id, {"event": "exited", "exit_code": 0})
    desk.tick()
    desk.slurm.is_accounting_down = True
    desk.slurm.requeue(launched.job_id, "NODE_FAIL")
    desk.tick()
    assert causes(desk.seen(launched.run_id)) == [None]
    desk.slurm.is_accounting_down = False
    desk.clock.advance(3600)
    desk.tick()
    assert causes(desk.seen(launched.run_id)) == [Cause.NODE_FAIL, None]


@pytest.mark.parametrize("restarts", [None, 0])
def test_what_the_queue_does_not_count_the_claims_tell(
    desk: Watched, monkeypatch: pytest.MonkeyPatch, restarts: int | None
) -> None:
    """A wrapper without the column, or a controller that has forgotten: the claim says so. Where a
    0 is told, that is looked into when anything else is new."""
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.clock.advance(60)
    desk.slurm.requeue(launched.job_id)
    desk.slurm.start(launched.job_id)
    tell_restarts(desk, monkeypatch, restarts)
    if restarts is None:
        desk.tick()
    claim(desk, launched, 2, launched.job_id)
    for _ in range(3):
        desk.tick()
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.REQUEUED, None]
    assert seen.attempts[-1].state is AttemptState.RUNNING


@pytest.mark.parametrize(("after_s", "cause"), [(5, Cause.STALLED), (3600, Cause.CANCELLED)])
def test_our_cancel_of_a_stall_that_meets_a_restart_is_no_request_to_stop(
    desk: Watched, after_s: float, cause: Cause
) -> None:
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    stall = Stall(
        at=desk.clock.now(),
        attempt=1,
        action="cancel",
        rule="silent",
        why="x",
        silent_s=1,
        signs=0,
        longest_s=0,
    )
    desk.say(launched.run_dir, stall)
    desk.slurm.requeue(launched.job_id)
    desk.look()
    desk.clock.advance(after_s)
    desk.slurm.cancel([launched.job_id])
    desk.tick()
    assert causes(desk.seen(launched.run_id))[:2] == [Cause.REQUEUED, cause]


@pytest.mark.parametrize("has_accounting", [True, False])
def test_a_job_that_was_renamed_and_restarted_is_still_ours(
    desk: Watched, has_accounting: bool
) -> None:
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.slurm.rename(launched.job_id, "my-job")
    desk.slurm.is_accounting_down = not has_accounting
    desk.clock.advance(60)
    desk.slurm.requeue(launched.job_id)
    for _ in range(8):
        assert desk.tick().sent == {}
        desk.clock.advance(60)
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.REQUEUED, None]
    assert jobs(seen) == [launched.job_id] * 2


def test_a_job_that_was_renamed_is_adopted_when_it_is_restarted_after_its_end(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.slurm.rename(launched.job_id, "my-job")
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    desk.slurm.requeue(launched.job_id)
    assert desk.tick().sent == {}
    desk.tick()
    assert jobs(desk.seen(launched.run_id)) == [launched.job_id] * 2


DAYS = 3 * 86400.0


def test_each_end_is_told_of_its_own_life_also_days_apart(desk: Watched) -> None:
    """Accounting is asked from a day before the newest life that was seen."""
    launched = desk.launch()
    desk.tick()
    for raw_state in ("NODE_FAIL", "REQUEUED", "PREEMPTED"):
        desk.clock.advance(DAYS)
        desk.slurm.requeue(launched.job_id, raw_state)
        desk.tick()
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.NODE_FAIL, Cause.REQUEUED, Cause.PREEMPTED, None]


def test_a_restart_days_later_that_nobody_saw_is_told_by_accounting_alone(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    desk.clock.advance(DAYS)
    desk.slurm.requeue(launched.job_id)
    desk.tick()
    desk.tick()
    desk.clock.advance(DAYS)
    desk.slurm.requeue(launched.job_id, "NODE_FAIL")
    desk.slurm.start(launched.job_id)
    desk.slurm.end(launched.job_id, "OUT_OF_MEMORY")
    desk.slurm.forget(launched.job_id)
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.REQUEUED, Cause.NODE_FAIL, Cause.OUT_OF_MEMORY]


def test_a_new_job_with_the_id_of_an_old_one_is_no_restart_of_it(desk: Watched) -> None:
    """Slurm gives an id again that it forgot in a crash; accounting has a record of both."""
    launched = desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    desk.slurm.forget(launched.job_id)
    desk.slurm.next_id = launched.job_id
    assert desk.tick().sent == {launched.run_id: launched.job_id}
    claim(desk, launched, 2, launched.job_id)
    desk.clock.advance(60)
    desk.slurm.end(launched.job_id, "NODE_FAIL")
    desk.slurm.forget(launched.job_id)
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.PREEMPTED, Cause.NODE_FAIL]
