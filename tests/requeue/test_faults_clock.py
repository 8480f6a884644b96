"""A clock that is an hour back or ahead: the daemon's own, a job's, or that of another daemon.

A wait may then be an hour longer or shorter; nothing is lost, and nothing is sent twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from hpcflow.clock import to_text
from hpcflow.errors import SubmissionDelayed
from hpcflow.launch.run import Launched
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.journal import Decided, Ended
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.reconcile.classify_end import VANISHED_AFTER_S
from hpcflow.requeue.daemon.loop import Daemon, ExitRequest
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.tick import Report
from hpcflow.storage import journal
from hpcflow.storage.restoring import Mark
from hpcflow.storage.runs import list_runs
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.requeue.watched import Watched

HOUR_S = 3600.0
jumps = pytest.mark.parametrize("jump_s", [-HOUR_S, HOUR_S], ids=["back", "ahead"])


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    """Slurm's clock is one, and that of whoever looks at it another."""
    desk = Watched(tmp_path)
    desk.slurm = FakeScheduler(FakeClock(desk.clock.now()), cluster_name="devcluster")
    return desk


def pass_s(desk: Watched, seconds: float) -> None:
    """Time passes for all."""
    desk.clock.advance(seconds)
    desk.slurm._clock.advance(seconds)  # type: ignore[attr-defined]


def sent_after_s(desk: Watched, most_s: float) -> float:
    """How long it takes until something is sent: to ten seconds, or to a minute after five."""
    waited_s = 0.0
    while not desk.tick().sent:
        assert waited_s < most_s, "it is not sent"
        step_s = 10 if waited_s < 300 else 60
        pass_s(desk, step_s)
        waited_s += step_s
    assert len(desk.alive()) == 1
    return waited_s


@jumps
@pytest.mark.parametrize("when", ["before its end", "after its end"])
def test_in_a_backoff_the_wait_is_an_hour_wrong_at_most(
    desk: Watched, jump_s: float, when: str
) -> None:
    launched = desk.launch()
    desk.tick()
    if when == "before its end":
        desk.clock.advance(jump_s)
    desk.end(launched.job_id, "FAILED", exit_code=1, checkpoint=100)
    if not desk.tick().sent:
        if when == "after its end":
            desk.clock.advance(jump_s)
        waited_s = sent_after_s(desk, HOUR_S + 60)
        if when == "before its end":
            assert waited_s <= 40, "Slurm's clock is ahead of ours, and it waits no longer for that"
    else:
        assert (when, jump_s) == ("before its end", HOUR_S), "ours is ahead of Slurm's"
    assert len(desk.alive()) == 1


@jumps
def test_after_a_full_limit_it_is_sent_within_the_hour(desk: Watched, jump_s: float) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults.append(Fault.DELAYED)
    assert desk.tick().sent == {}
    desk.clock.advance(jump_s)
    sent_after_s(desk, HOUR_S + 60)


@jumps
def test_who_waited_for_room_needs_no_clock_when_there_is_some(
    desk: Watched, jump_s: float
) -> None:
    """Three found out that the limit is full; the others were to be sent at once, and still are."""
    runs = [desk.launch() for _ in range(5)]
    desk.tick()
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=1)
    desk.look()
    desk.clock.advance(jump_s)
    desk.slurm.faults += [Fault.DELAYED] * 3
    assert desk.tick().sent == {}
    pass_s(desk, 10)
    assert len(desk.tick().sent) == 2
    pass_s(desk, 30)
    desk.tick()
    assert len(desk.alive()) == 5


def test_who_found_no_room_is_sent_when_there_is_some_though_the_clock_went_back(
    desk: Watched,
) -> None:
    runs = [desk.launch() for _ in range(4)]
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=1)
    desk.slurm.faults += [Fault.DELAYED] * 3
    assert desk.tick().sent == {}
    desk.clock.advance(-HOUR_S)
    assert len(desk.tick().sent) == 1, "the one that nobody turned away"


@jumps
def test_a_job_that_is_not_seen_for_a_moment_is_not_given_up_by_a_clock_that_jumps(
    desk: Watched, jump_s: float
) -> None:
    """The controller came back without it, and has it again a minute later: it never was away."""
    launched = desk.launch()
    desk.tick()
    alive, desk.slurm = desk.slurm, FakeScheduler(desk.slurm._clock, cluster_name="devcluster")
    desk.tick()
    desk.clock.advance(jump_s)
    for _ in range(6):
        assert desk.tick().sent == {}
        assert desk.slurm.queue() == []
        pass_s(desk, 10)
    desk.slurm = alive
    for _ in range(3):
        assert desk.tick().sent == {}
        pass_s(desk, HOUR_S)
    assert desk.alive() == [launched.job_id]
    assert desk.seen(launched.run_id).attempts[0].state is AttemptState.RUNNING


@jumps
def test_a_job_that_has_vanished_is_sent_again_soon_whatever_the_clock(
    desk: Watched, jump_s: float
) -> None:
    desk.launch()
    desk.tick()
    desk.slurm = FakeScheduler(desk.slurm._clock, cluster_name="devcluster")
    desk.tick()
    desk.clock.advance(jump_s)
    waited_s = sent_after_s(desk, HOUR_S)
    assert VANISHED_AFTER_S / 2 <= waited_s <= 2 * VANISHED_AFTER_S


@pytest.mark.parametrize("apart_s", [60, 100, HOUR_S])
@pytest.mark.parametrize("nodes", [2, 3])
def test_login_nodes_whose_clocks_differ_make_no_job_vanish_sooner_or_never(
    desk: Watched, monkeypatch: pytest.MonkeyPatch, nodes: int, apart_s: float
) -> None:
    """A daemon on one of them, ``hpcflow ls`` on the others, in turn for as long as it takes."""
    desk.launch()
    desk.tick()
    desk.slurm = FakeScheduler(desk.slurm._clock, cluster_name="devcluster")
    now = desk.clock.now()
    clocks = [FakeClock(now + timedelta(seconds=number * apart_s)) for number in range(nodes)]
    waited_s = 0.0
    while not _has_ended(desk):
        assert waited_s <= VANISHED_AFTER_S + 30, "each of them counts, and none is kept from it"
        for number, clock in enumerate(clocks):
            desk.clock = clock
            monkeypatch.setattr("socket.gethostname", lambda number=number: f"login{number}")
            if number == 0:
                assert desk.tick().sent == {}
            else:
                desk.look()
        for clock in clocks:
            clock.advance(10)
        waited_s += 10
    assert waited_s > VANISHED_AFTER_S


def test_a_job_vanishes_though_each_round_comes_from_another_node(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.launch()
    desk.tick()
    desk.slurm = FakeScheduler(desk.slurm._clock, cluster_name="devcluster")
    began = desk.clock.now()
    for number in range(100):
        monkeypatch.setattr("socket.gethostname", lambda number=number: f"n{number}")
        if desk.tick().sent:
            break
        pass_s(desk, 300)
    assert timedelta(hours=3) <= desk.clock.now() - began <= timedelta(hours=3, minutes=10)


def _has_ended(desk: Watched) -> bool:
    (run_dir,) = list_runs(desk.settings.home)
    return any(isinstance(record, Ended) for record in journal.read(run_dir))


@jumps
def test_the_clock_of_the_job_changes_neither_its_end_nor_what_follows(
    desk: Watched, jump_s: float
) -> None:
    launched = desk.launch()
    desk.tick()
    theirs = desk.clock.now() + timedelta(seconds=jump_s)
    events: list[dict[str, object]] = [
        {"event": "started", "job_id": launched.job_id, "nodes": ["n1"]},
        {"event": "checkpoint", "train_step": 5, "path": "checkpoints/5", "size_bytes": 1},
        {"event": "exited", "exit_code": 1},
    ]
    with desk.dir_of(launched).attempt(1).events.open("w") as file:
        file.writelines(json.dumps({"at": to_text(theirs), **event}) + "\n" for event in events)
    desk.slurm = FakeScheduler(desk.slurm._clock, cluster_name="devcluster")  # Slurm forgot it
    assert desk.tick().sent == {} or jump_s < 0
    if not desk.alive():
        assert sent_after_s(desk, 60) <= 40
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.FAILED


@pytest.mark.parametrize("year", [2100, 12000])
def test_a_file_whose_time_is_nonsense_ends_no_daemon_and_keeps_no_run(
    desk: Watched, year: int
) -> None:
    """A node whose clock is wrong, on a file system that believes its clients."""
    launched, other = desk.launch(), desk.launch()
    desk.tick()
    with NamedTemporaryFile(dir="/dev/shm") as events:  # other file systems know no year 12000
        desk.dir_of(launched).attempt(1).events.symlink_to(events.name)
        moment = (year - 1970) * 31_556_952
        os.utime(events.name, (moment, moment))
        desk.slurm._jobs.pop(launched.job_id)
        for _ in range(3):
            desk.tick()
            pass_s(desk, VANISHED_AFTER_S / 2)
        desk.end(other.job_id, "COMPLETED", exit_code=0)
        desk.tick()
        assert desk.seen(other.run_id).run.state is RunState.COMPLETED
        assert desk.seen(launched.run_id).attempts[0].cause is Cause.VANISHED


@jumps
def test_an_open_intent_is_settled_once_by_whatever_clock(desk: Watched, jump_s: float) -> None:
    """Killed after sbatch; whoever comes next lives an hour earlier or later."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    assert desk.tick().sent == {}
    desk.slurm.is_controller_down = False
    desk.clock.advance(jump_s)
    for _ in range(3):
        assert desk.tick().sent == {}
        pass_s(desk, 60)
    (job_id,) = desk.alive()
    desk.end(job_id, "COMPLETED", exit_code=0)
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.COMPLETED
    assert [attempt.cause for attempt in seen.attempts] == [Cause.PREEMPTED, Cause.COMPLETED]


def daemon(desk: Watched, ledger: Ledger, clock: FakeClock) -> Daemon:
    around = RoundContext(
        ledger, desk.settings, clock, connect=lambda _: desk.slurm, find_site=lambda _: desk.site
    )
    return Daemon(around, ExitRequest(clock), on_report=lambda _: None, on_text=lambda _: None)


@jumps
def test_two_daemons_whose_clocks_are_an_hour_apart_send_nothing_twice(
    desk: Watched, jump_s: float
) -> None:
    """Each takes the lease from the other, and learns of it before its next act."""
    wrong = FakeClock(desk.clock.now() + timedelta(seconds=jump_s))
    with open_ledger(desk.settings.ledger_url) as one, open_ledger(desk.settings.ledger_url) as two:
        daemons = [daemon(desk, one, desk.clock), daemon(desk, two, wrong)]
        runs = [desk.launch() for _ in range(4)]
        sent: list[str] = []
        for turn in range(8):
            for job_id in desk.alive():
                desk.end(job_id, "PREEMPTED", checkpoint=100 * (turn + 1))
            for each in daemons if turn % 2 else reversed(daemons):
                report = _round(each)
                sent += report.sent.values() if report else []
            pass_s(desk, 10)
            wrong.advance(10)
            assert len(desk.alive()) == len(runs)
    assert len(sent) == len(set(sent)) == 8 * len(runs)


def _round(each: Daemon) -> Report | None:
    """One round of the loop, after which it keeps the lease."""
    reports: list[Report] = []
    each._on_report = reports.append
    each._round()
    return reports[0] if reports else None


@jumps
def test_a_daemon_whose_own_clock_jumps_keeps_the_lease_and_gives_it_back(
    desk: Watched, jump_s: float
) -> None:
    with open_ledger(desk.settings.ledger_url) as ledger:
        mine = daemon(desk, ledger, desk.clock)
        for number in range(3):
            launched = desk.launch()
            desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
            report = _round(mine)
            assert report is not None
            assert list(report.sent) == [launched.run_id]
            if number == 0:
                desk.clock.advance(jump_s)
        mine._give_back()
        other = daemon(desk, ledger, desk.clock)
        assert _round(other) is not None, "the lease that was given back is free"


@jumps
def test_the_lease_of_a_dead_daemon_with_a_wrong_clock_is_free_in_time(
    desk: Watched, jump_s: float
) -> None:
    wrong = FakeClock(desk.clock.now() + timedelta(seconds=jump_s))
    with open_ledger(desk.settings.ledger_url) as one, open_ledger(desk.settings.ledger_url) as two:
        _round(daemon(desk, one, wrong))  # and is killed
        assert _round(daemon(desk, two, desk.clock)) is not None


TEN_YEARS_S = 10 * 365 * 24 * HOUR_S
far_jumps = pytest.mark.parametrize("jump_s", [-TEN_YEARS_S, TEN_YEARS_S], ids=["back", "ahead"])


def one_round_elsewhen(desk: Watched, jump_s: float, rounds: int = 1) -> None:
    """The daemon's clock alone is wrong, for so many rounds."""
    desk.clock.advance(jump_s)
    for _ in range(rounds):
        desk.tick()
        desk.clock.advance(10)
    desk.clock.advance(-jump_s)


def never_sent(desk: Watched) -> Launched:
    desk.slurm.faults.append(Fault.DELAYED)
    with pytest.raises(SubmissionDelayed) as caught:
        desk.launch()
    run_id, path = caught.value.details["run_id"], caught.value.details["run_dir"]
    return Launched(str(run_id), 0, "", Path(str(path)), "devcluster")


def preempted(desk: Watched) -> Launched:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    return launched


def failed(desk: Watched) -> Launched:
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", exit_code=1, checkpoint=100)
    return launched


def refused_while_wrong(desk: Watched) -> Launched:
    """What that round sends, Slurm puts off."""
    launched = preempted(desk)
    desk.slurm.faults += [Fault.DELAYED] * 3
    return launched


def lost_while_wrong(desk: Watched) -> Launched:
    launched = desk.launch()
    desk.slurm._jobs.pop(launched.job_id)
    return launched


@far_jumps
@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize(
    "begin",
    [never_sent, preempted, failed, refused_while_wrong, lost_while_wrong],
    ids=lambda each: each.__name__,
)
def test_a_clock_that_is_years_off_for_some_rounds_stops_and_delays_nothing_for_good(
    desk: Watched, begin: Callable[[Watched], Launched], rounds: int, jump_s: float
) -> None:
    """It ends in the same hour as with a clock that is right."""
    desk.config.write_text(desk.config.read_text() + "retry: {deadline: 30d}\n")
    launched = begin(desk)
    one_round_elsewhen(desk, jump_s, rounds)
    assert not any(
        isinstance(record, Decided) and record.action == "stop"
        for record in journal.read(desk.dir_of(launched))
    )
    if not desk.alive():
        sent_after_s(desk, HOUR_S)
    (job_id,) = desk.alive()
    desk.end(job_id, "COMPLETED", exit_code=0)
    assert desk.seen(launched.run_id).run.state is RunState.COMPLETED


@pytest.mark.parametrize("rule", ["forgotten", "deadline"])
def test_what_the_time_alone_says_counts_when_two_looks_agree(desk: Watched, rule: str) -> None:
    if rule == "deadline":
        desk.config.write_text(desk.config.read_text() + "retry: {deadline: 1d}\n")
    launched = preempted(desk)
    desk.look()
    pass_s(desk, (2 if rule == "deadline" else 15) * 24 * HOUR_S)
    first = desk.tick().decisions[launched.run_id]
    assert (first.action.value, first.rule) == ("wait", rule)
    assert first.not_before == desk.clock.now() + timedelta(hours=1)
    pass_s(desk, HOUR_S / 2)
    assert desk.tick().decisions == {}, "it is said once"
    pass_s(desk, HOUR_S / 2)
    assert desk.tick().decisions[launched.run_id].action.value == "stop"
    assert desk.alive() == []


def test_a_first_look_by_a_clock_that_was_ahead_is_none(desk: Watched) -> None:
    launched = preempted(desk)
    desk.look()
    desk.clock.advance(TEN_YEARS_S)
    assert desk.tick().decisions[launched.run_id].rule == "forgotten"
    desk.clock.advance(-TEN_YEARS_S)
    pass_s(desk, 15 * 24 * HOUR_S)
    again = desk.tick().decisions[launched.run_id]
    assert again.not_before == desk.clock.now() + timedelta(hours=1)
    pass_s(desk, HOUR_S)
    assert desk.tick().decisions[launched.run_id].action.value == "stop"


def test_nothing_is_stopped_by_the_time_while_slurm_hears_nobody(desk: Watched) -> None:
    """munge, by which Slurm knows who asks, refuses whoever's clock is minutes off."""
    launched = preempted(desk)
    desk.look()
    pass_s(desk, 15 * 24 * HOUR_S)
    desk.tick()
    pass_s(desk, 2 * HOUR_S)
    desk.slurm.is_controller_down = True
    for _ in range(3):
        assert desk.tick().decisions == {}
        pass_s(desk, 600)
    desk.slurm.is_controller_down = False
    pass_s(desk, 600)
    assert desk.tick().decisions[launched.run_id].action.value == "stop"


def test_a_run_that_was_made_by_a_clock_that_was_ahead_is_sent(desk: Watched) -> None:
    desk.clock.advance(TEN_YEARS_S)
    launched = never_sent(desk)
    desk.clock.advance(-TEN_YEARS_S)
    sent_after_s(desk, HOUR_S)
    assert desk.seen(launched.run_id).run.state is RunState.RUNNING


def test_the_bill_of_an_end_that_was_seen_by_a_clock_that_was_ahead_is_written(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    one_round_elsewhen(desk, TEN_YEARS_S)
    for _ in range(3):
        pass_s(desk, 60)
        desk.tick()
    assert desk.seen(launched.run_id).attempts[0].billed_by == "accounting"


def test_a_restore_that_failed_by_a_clock_that_was_ahead_is_tried_again() -> None:
    now = FakeClock().now()
    mark = Mark(now + timedelta(seconds=TEN_YEARS_S), "nothing", "the store does not have it")
    assert not mark.waits(now)
    assert Mark(now, "nothing", "the store does not have it").waits(now)
