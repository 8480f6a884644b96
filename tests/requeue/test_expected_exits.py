"""A job that says it is about to leave is not kept waiting for the next round."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from hpcflow.errors import HpcflowError
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.requeue.daemon.loop import INTERVAL_S, MOST, SOON_S, Daemon, ExitRequest, ExpectedExits
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.tick import Report
from hpcflow.storage.layout import AttemptDir
from tests.requeue.training import MINUTE
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return Watched(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def ledger(desk: Watched) -> Iterator[Ledger]:
    with open_ledger(desk.settings.ledger_url) as opened:
        yield opened


def running(desk: Watched) -> tuple[str, AttemptDir]:
    """Job id and folder of an attempt that runs."""
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    return launched.job_id, desk.dir_of(launched).attempt(1)


def say(attempt: AttemptDir, event: str) -> None:
    with attempt.events.open("a") as file:
        file.write(f'{{"at": "2026-01-01T00:00:00.000Z", "event": "{event}", "train_step": 1}}\n')


def rounds(
    desk: Watched, ledger: Ledger, *, until_s: float, on_text: Callable[[str], Any] = pytest.fail
) -> list[float]:
    """When a daemon's rounds were, in seconds since it began."""
    told, began = ExitRequest(desk.clock), desk.clock.monotonic()
    found: list[float] = []

    def on_report(_: Report) -> None:
        found.append(desk.clock.monotonic() - began)
        told.is_over = found[-1] >= until_s

    around = RoundContext(
        ledger,
        desk.settings,
        desk.clock,
        connect=lambda _: desk.slurm,
        find_site=lambda _: desk.site,
    )
    Daemon(around, told, on_report=on_report, on_text=on_text).run()
    return found


def after(desk: Watched, seconds: float, act: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call ``act`` once the clock has gone on by so much."""
    at, sleep = desk.clock.monotonic() + seconds, desk.clock.sleep
    left = [act]

    def sleeping(wanted_s: float) -> None:
        sleep(wanted_s)
        if left and desk.clock.monotonic() >= at:
            left.pop()()  # type: ignore[operator]

    monkeypatch.setattr(desk.clock, "sleep", sleeping)


@pytest.mark.parametrize("event", ["notice", "exited"])
def test_a_job_that_leaves_is_looked_at_soon(
    desk: Watched, ledger: Ledger, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, attempt = running(desk)

    def leave() -> None:
        say(attempt, event)
        desk.slurm.end(job_id, "PREEMPTED")

    after(desk, 4, leave, monkeypatch)
    found = rounds(desk, ledger, until_s=15)
    assert 4 <= found[1] <= 5
    assert found[2] - found[1] == pytest.approx(INTERVAL_S, abs=1), "the next one only waits"


def test_a_daemon_that_makes_no_round_gives_up_no_sooner_because_jobs_leave(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, attempt = running(desk)
    known, began = ledger.undecided, desk.clock.monotonic()

    def stumbles(*args: Any, **options: Any) -> list[str]:
        if desk.clock.monotonic() == began:
            return known(*args, **options)
        say(attempt, "notice")
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(ledger, "undecided", stumbles)
    with pytest.raises(HpcflowError, match="rounds failed"):
        rounds(desk, ledger, until_s=60, on_text=lambda _: None)
    assert desk.clock.monotonic() - began >= 5 * MINUTE


def test_what_only_trains_is_looked_at_in_the_usual_rhythm(
    desk: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, attempt = running(desk)
    after(desk, 4, lambda: say(attempt, "progress"), monkeypatch)
    assert rounds(desk, ledger, until_s=9)[1] == pytest.approx(INTERVAL_S, abs=1)


def test_an_end_that_does_not_come_is_not_waited_for_in_haste_for_ever(
    desk: Watched, ledger: Ledger
) -> None:
    _, attempt = running(desk)
    say(attempt, "notice")
    found = rounds(desk, ledger, until_s=60)
    apart = [after - before for before, after in pairwise(found)]
    assert min(apart) >= SOON_S
    assert apart[0] == pytest.approx(SOON_S, abs=0.5)
    assert apart[-1] == pytest.approx(INTERVAL_S, abs=1)


@pytest.mark.parametrize("name", ["notice", "exited"])
def test_a_metric_of_such_a_name_announces_nothing(desk: Watched, name: str) -> None:
    _, attempt = running(desk)
    departures = ExpectedExits(desk.clock)
    with attempt.events.open("a") as file:
        file.write(json.dumps({"event": "progress", "train_step": 5, "metrics": {name: 1.0}}))
        file.write("\n")
    departures.listen_to([(str(attempt.path.parents[1]), 1)])
    assert not departures.is_near()
    say(attempt, name)
    assert departures.is_near()


def test_a_pipe_in_the_place_of_its_events_is_not_listened_to(desk: Watched) -> None:
    """Whoever opens one waits until somebody writes into it."""
    _, attempt = running(desk)
    os.mkfifo(attempt.events)
    departures = ExpectedExits(desk.clock)
    departures.listen_to([(str(attempt.path.parents[1]), 1)])
    assert not departures.is_near()


def test_of_too_many_none_is_listened_to(desk: Watched) -> None:
    _, attempt = running(desk)
    say(attempt, "exited")
    departures = ExpectedExits(desk.clock)
    run_dir = str(attempt.path.parents[1])
    departures.listen_to([(run_dir, 1)])
    assert departures.is_near()
    departures.listen_to([(run_dir, 1 + number) for number in range(MOST + 1)])
    assert not departures.is_near()


def test_the_ledger_knows_who_runs(desk: Watched, ledger: Ledger) -> None:
    job_id, _ = running(desk)
    _, stays = running(desk)
    desk.tick()
    assert len(ledger.at_work(user=desk.settings.user, limit=10)) == 2
    assert len(ledger.at_work(user=desk.settings.user, limit=1)) == 1
    assert ledger.at_work(user="grace", limit=10) == []
    desk.slurm.end(job_id, "COMPLETED")
    desk.tick()
    run_dir = str(stays.path.parents[1])
    assert ledger.at_work(user=desk.settings.user, limit=10) == [(run_dir, 1)]
