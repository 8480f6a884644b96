"""Any number of daemons are one and its spares; each ends when it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import HpcflowError, LedgerError
from hpcflow.ledger.lease import acquire, look
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.requeue.daemon.loop import INTERVAL_S, TTL_S, Daemon, ExitRequest, lease_name
from hpcflow.requeue.mirroring import Mirroring
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.tick import Report
from hpcflow.schedulers.base import JobInfo, JobRef, SubmitRequest
from hpcflow.storage.layout import Home
from tests.requeue.training import MINUTE
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def ledger(desk: Watched) -> Iterator[Ledger]:
    with open_ledger(desk.settings.ledger_url) as opened:
        yield opened


class Process:
    """A daemon, and what it has said."""

    def __init__(self, desk: Watched, ledger: Ledger, *, interval_s: float = INTERVAL_S) -> None:
        self.reports: list[Report] = []
        self.texts: list[str] = []
        self.told = ExitRequest(desk.clock)
        self.daemon = Daemon(
            RoundContext(
                ledger,
                desk.settings,
                desk.clock,
                connect=lambda _: desk.slurm,
                find_site=lambda _: desk.site,
            ),
            self.told,
            on_report=self._report,
            on_text=self.texts.append,
            interval_s=interval_s,
        )
        self.ticks_left = 1

    def run(self, ticks: int = 1) -> None:
        """Loop until so many ticks were made, or asked for in vain."""
        self.ticks_left = ticks
        self.daemon.run()
        self.told.is_over = False

    def _report(self, report: Report) -> None:
        self.reports.append(report)
        self.ticks_left -= 1
        self.told.is_over = self.ticks_left <= 0


def preempted(desk: Watched, count: int = 1) -> list[str]:
    runs = [desk.launch() for _ in range(count)]
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    return [launched.run_id for launched in runs]


def taken(desk: Watched, ledger: Ledger, name: str | None = None, *, ttl_s: float = TTL_S) -> None:
    """Another process takes the lease: the user's own one, or ``name``."""
    lease = acquire(
        ledger,
        name or lease_name(desk.settings),
        holder="other",
        host="login1",
        pid=7,
        ttl_s=ttl_s,
        now=desk.clock.now(),
    )
    assert lease is not None


def test_it_ticks_until_it_is_told_to_end_and_gives_the_lease_back(
    desk: Watched, ledger: Ledger
) -> None:
    (run_id,) = preempted(desk)
    process = Process(desk, ledger)
    process.run(3)
    assert [list(report.sent) for report in process.reports] == [[run_id], [], []]
    lease = look(ledger, lease_name(desk.settings))
    assert lease is not None
    assert not lease.is_alive(desk.clock.now())


def test_while_one_is_at_it_the_other_does_nothing(desk: Watched, ledger: Ledger) -> None:
    preempted(desk)
    taken(desk, ledger)
    second = Process(desk, ledger)
    assert second.daemon.once() is None
    assert desk.alive() == []
    assert second.texts == [], "cron would put it into the log every minute"
    second.run()
    assert second.texts == ["process 7 on login1 is the active daemon; waiting"]
    (report,) = second.reports
    assert len(report.sent) == 1, "in the end the first one is taken for dead"


def test_whoever_was_only_taken_for_dead_stops_before_its_next_act(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = preempted(desk, 3)
    process = Process(desk, ledger)
    submit = desk.slurm.submit

    def slow(request: SubmitRequest) -> JobRef:
        """sbatch takes so long that somebody else takes over."""
        monkeypatch.setattr(desk.slurm, "submit", submit)
        desk.clock.advance(TTL_S + 1)
        with open_ledger(desk.settings.ledger_url) as own:
            taken(desk, own, ttl_s=1)
        return submit(request)

    monkeypatch.setattr(desk.slurm, "submit", slow)
    report = process.daemon.once()
    assert report is not None
    assert (len(report.sent), report.has_lost_lease) == (1, True)
    desk.clock.advance(2)
    again = process.daemon.once()
    assert again is not None
    assert len(again.sent) == 2
    assert len(desk.alive()) == len(runs)


def test_a_ledger_that_does_not_answer_is_asked_again(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_id,) = preempted(desk)
    process = Process(desk, ledger)
    known, failures = ledger.undecided, iter(range(2))

    def down(*args: object, **options: object) -> list[str]:
        if next(failures, None) is not None:
            raise LedgerError("the ledger does not answer")
        return known(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "undecided", down)
    process.run()
    assert list(process.reports[0].sent) == [run_id]
    assert process.texts == ["the ledger does not answer; trying again"], "it is said once"


class Tended(Mirroring):
    """Counts; starts nothing."""

    def __init__(self) -> None:
        self.times = 0

    def tend(self) -> None:
        self.times += 1

    def close(self) -> None:
        pass


def test_a_ledger_that_does_not_answer_keeps_nothing_from_the_mirror(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no ledger; but beside a spare daemon there is none."""
    process, tended = Process(desk, ledger), Tended()
    process.daemon._mirroring = tended
    undecided, rounds = ledger.undecided, iter(range(5))

    def down(*args: object, **options: object) -> list[str]:
        if next(rounds, None) is not None:
            raise LedgerError("the ledger does not answer")
        return undecided(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "undecided", down)
    process.run()
    assert tended.times == 5
    taken(desk, ledger, ttl_s=10 * INTERVAL_S)
    process.run()
    assert tended.times == 5


def test_a_home_that_is_away_for_a_while_ends_no_daemon(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_id,) = preempted(desk)
    runs = desk.settings.home.runs
    away = runs.rename(runs.with_name("away"))
    runs.touch()
    process = Process(desk, ledger)

    def comes_back(_: float) -> None:
        if away.exists():
            runs.unlink()
            away.rename(runs)

    monkeypatch.setattr(process.told, "sleep", comes_back)
    process.run()
    assert list(process.reports[0].sent) == [run_id]
    (text,) = process.texts
    assert "; trying again → look at the folder: " in text


def test_a_bug_ends_no_daemon_and_is_said_once(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_id,) = preempted(desk)
    process = Process(desk, ledger)
    known, failures = ledger.undecided, iter(range(2))

    def stumbles(*args: Any, **options: Any) -> list[str]:
        if next(failures, None) is not None:
            raise ZeroDivisionError("division by zero")
        return known(*args, **options)

    monkeypatch.setattr(ledger, "undecided", stumbles)
    begin_s = desk.clock.monotonic()
    process.run()
    assert list(process.reports[0].sent) == [run_id]
    assert process.texts == ["ZeroDivisionError: division by zero; trying again"]
    assert desk.clock.monotonic() - begin_s >= 3 * INTERVAL_S, "the second time twice as long"


def test_a_daemon_that_makes_no_round_leaves_it_to_others_and_ends(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade in place, say: what it imports only now is of another version."""
    preempted(desk)
    process = Process(desk, ledger)
    held = []

    def stumbles(*_: object, **__: object) -> list[str]:
        raise ImportError("cannot import name 'tick'")

    monkeypatch.setattr(ledger, "undecided", stumbles)
    sleep = process.told.sleep

    def looks_and_sleeps(seconds: float) -> None:
        lease = look(ledger, lease_name(desk.settings))
        held.append(lease is not None and lease.is_alive(desk.clock.now()))
        sleep(seconds)

    monkeypatch.setattr(process.told, "sleep", looks_and_sleeps)
    begin_s = desk.clock.monotonic()
    with pytest.raises(HpcflowError, match="the last 6 rounds failed: ImportError"):
        process.run()
    assert held == [False] * 5
    assert 5 * MINUTE <= desk.clock.monotonic() - begin_s < 6 * MINUTE, "it may pass by itself"


def test_told_to_end_it_ends_before_the_next_act(desk: Watched, ledger: Ledger) -> None:
    preempted(desk, 3)
    process = Process(desk, ledger)
    around = process.daemon._context
    asked = iter([True, False, False])

    def may_act() -> bool:
        process.told.is_over = not next(asked)
        return around.may_act()

    process.daemon._context = replace(around, may_act=may_act)
    process.daemon.run()
    assert len(desk.alive()) == 1
    assert process.reports[0].has_lost_lease
    assert process.texts == []


def test_each_user_of_a_shared_ledger_has_a_daemon_of_their_own(
    desk: Watched, ledger: Ledger
) -> None:
    taken(desk, ledger, lease_name(replace(desk.settings, user="grace")))
    (run_id,) = preempted(desk)
    report = Process(desk, ledger).daemon.once()
    assert report is not None
    assert list(report.sent) == [run_id]


def test_each_cluster_of_a_common_home_has_a_daemon_of_its_own(
    desk: Watched, ledger: Ledger, tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=elsewhere\n")
    elsewhere = {**desk.settings.environ, "SLURM_CONF": str(conf)}
    taken(desk, ledger, lease_name(replace(desk.settings, environ=elsewhere)))
    (run_id,) = preempted(desk)
    report = Process(desk, ledger).daemon.once()
    assert report is not None
    assert list(report.sent) == [run_id]


def test_each_home_on_a_common_ledger_has_a_daemon_of_its_own(
    desk: Watched, ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    second = Watched(tmp_path / "second")
    second.settings = replace(second.settings, ledger_url=desk.settings.ledger_url)
    second.clock, second.slurm = desk.clock, desk.slurm
    taken(desk, ledger)
    (run_id,) = preempted(second)
    report = Process(second, ledger).daemon.once()
    assert report is not None
    assert list(report.sent) == [run_id]


def test_a_home_that_is_reached_by_another_path_is_the_same_home(
    desk: Watched, ledger: Ledger, tmp_path: Path
) -> None:
    desk.settings.home.path.mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(desk.settings.home.path)
    taken(desk, ledger)
    desk.settings = replace(desk.settings, home=Home(tmp_path / "link"))
    assert Process(desk, ledger).daemon.once() is None


def asked_at_s(desk: Watched, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the queue was asked; gets longer."""
    asked: list[float] = []
    queue = desk.slurm.queue

    def ask(job_ids: Sequence[str] = ()) -> list[JobInfo]:
        asked.append(desk.clock.monotonic())
        return queue(job_ids)

    monkeypatch.setattr(desk.slurm, "queue", ask)
    return asked


def test_a_queue_that_is_silent_is_asked_ever_more_rarely_until_it_answers(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = desk.launch()
    (ended,) = preempted(desk)
    desk.look()
    asked = asked_at_s(desk, monkeypatch)
    process = Process(desk, ledger, interval_s=5)
    desk.slurm.is_controller_down = True
    process.run(60)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert [round(each) for each in pauses] == [10, 20, 40, 60, 60, 60]
    assert {tuple(report.warnings) for report in process.reports} == {
        (
            "devcluster: Unable to contact slurm controller (connect failure); "
            "showing the last known state",
        )
    }
    desk.slurm.is_controller_down = False
    desk.end(running.job_id, "PREEMPTED", checkpoint=100)
    process.run(13)
    sent = {run_id for report in process.reports for run_id in report.sent}
    assert sent == {running.run_id, ended}
    asked.clear()
    process.run(30)
    assert len(asked) == 30, "as often as ever"


def test_whoever_comes_for_one_round_asks_the_queue(desk: Watched, ledger: Ledger) -> None:
    desk.launch()
    desk.slurm.is_controller_down = True
    for _ in range(3):
        desk.slurm.calls.clear()
        assert Process(desk, ledger).daemon.once() is not None
        assert desk.slurm.calls == ["queue"]


def test_while_the_queue_is_silent_all_goes_on_that_needs_none(
    desk: Watched, ledger: Ledger
) -> None:
    first, second = preempted(desk, 2)
    desk.config.write_text(desk.config.read_text() + "retry: {failures: 0}\n")
    failed = desk.launch()
    desk.look()
    desk.clock.advance(1)
    desk.end(failed.job_id, "FAILED", exit_code=1)
    desk.look()
    desk.slurm.is_controller_down = True
    desk.slurm.calls.clear()
    process = Process(desk, ledger, interval_s=1)
    process.run(5)
    assert process.reports[0].decisions[failed.run_id].rule == "budget"
    assert all(len(report.problems.keys() & {first, second}) == 1 for report in process.reports)
    assert desk.slurm.calls == ["queue"]
