"""In a shared ledger other users can write into the rows of one's runs. What hpcflow does for a run
follows from its files: no job is cancelled, sent or told to leave for such a row, and nothing of it
reaches the journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from hpcflow.clock import to_text
from hpcflow.errors import SchedulerUnavailable
from hpcflow.launch.run import Launched
from hpcflow.ledger.derive import CANCEL_DUE, STANDBY_WANTED
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.ledger.url import DatabaseUrl
from hpcflow.model.journal import Held
from hpcflow.projection import rebuild
from hpcflow.requeue.surroundings import Surroundings
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.ledger.databases import databases, ledger_url
from tests.requeue.training import MINUTE, Training

__all__ = ["databases", "ledger_url"]


class Shared(Training):
    """A run in a ledger that others write in, and another job of its owner.

    Attributes:
        elsewhere: the scheduler of the site ``other``.
    """

    elsewhere: FakeScheduler | None = None

    @contextmanager
    def around(self, may_act: Callable[[], bool] = lambda: True) -> Iterator[Surroundings]:
        with super().around(may_act) as around:
            other = self.elsewhere or self.slurm
            yield replace(around, connect=lambda name: other if name == "other" else self.slurm)

    def begin(self, retry: str = "{failures: 0}") -> Launched:
        self.other = self.slurm._add("mywork", "#!/bin/bash\n", "gpu", list(self.slurm.nodes))
        self.slurm._advance()
        launched = self.launch_with(retry)
        self.clock.advance(MINUTE)
        self.event(launched, "started", job_id=launched.job_id, nodes=["n1"])
        self.event(launched, "train_started", train_step=0)
        self.event(launched, "progress", train_step=1, metrics={})
        self.tick()
        self.run_id, self.job_id = launched.run_id, launched.job_id
        return launched

    def ledger(self) -> Ledger:
        return open_ledger(self.settings.ledger_url)

    def read(self, table: str, column: str) -> dict[str, Any]:
        with self.ledger() as ledger:
            sql = f"SELECT {column} FROM {table} WHERE run_id = ?"
            ((text,),) = ledger.connection().rows(sql, [self.run_id])
        found: dict[str, Any] = json.loads(text)
        return found

    def write(self, table: str, **values: Any) -> None:
        """What another user does."""
        names = ", ".join(f"{name} = ?" for name in values)
        given = [json.dumps(v) if isinstance(v, dict) else v for v in values.values()]
        with self.ledger() as ledger:
            sql = f"UPDATE {table} SET {names} WHERE run_id = ?"
            ledger.connection().execute(sql, [*given, self.run_id])

    def now(self) -> str:
        return to_text(self.clock.now())


def cancelled(desk: Shared) -> None:
    said = {**desk.read("run", "journal"), "cancel_requested_at": desk.now()}
    desk.write("run", journal=said, next_action=CANCEL_DUE)


def not_held(desk: Shared) -> None:
    said = desk.read("run", "journal")
    said.pop("held_at", None)
    desk.write("run", journal=said, next_action=None)


def ended(desk: Shared, cause: str) -> None:
    now = desk.now()
    end = {"cause": cause, "at": now, "raw_state": "", "ended_at": now, "rule": "x"}
    said = {**desk.read("attempt", "journal"), "ended": end}
    desk.write("attempt", state="ended", cause=cause, ended_at=now, journal=said)
    desk.write("run", state="waiting", cause=cause, next_action=None)


def ended_as_preempted(desk: Shared) -> None:
    ended(desk, "preempted")


def ended_as_failed(desk: Shared) -> None:
    ended(desk, "failed")


def job_is_another(desk: Shared) -> None:
    said = desk.read("attempt", "journal")
    said["submitted"]["job_id"] = desk.other
    said["intended"]["job_name"] = "mywork"
    desk.write("attempt", journal=said, job_id=desk.other, job_name="mywork")
    desk.slurm.end(desk.other, "FAILED", exit_code=1)


def one_attempt_more(desk: Shared) -> None:
    names = "run_id, job_name, state, nodes, report, started_at"
    said = {"intended": {"job_name": "mywork"}, "submitted": {"job_id": desk.other}}
    with desk.ledger() as ledger:
        ledger.connection().execute(
            f"INSERT INTO attempt ({names}, attempt, job_id, journal) "
            f"SELECT {names}, 7, ?, ? FROM attempt WHERE run_id = ?",
            [desk.other, json.dumps(said), desk.run_id],
        )
    desk.write("attempt", job_name="mywork")
    desk.slurm.end(desk.other, "FAILED", exit_code=1)


def wants_a_standby(desk: Shared) -> None:
    desk.write("run", next_action=STANDBY_WANTED)


def waits_for_a_time(desk: Shared) -> None:
    later = desk.clock.now() + timedelta(minutes=2)
    said = desk.read("attempt", "journal")
    said["intended"].update(restarts=1, job_name="mywork")
    said["submitted"]["job_id"] = desk.other
    desk.slurm.begin_at(desk.other, later)
    waits = {"state": "queued", "raw_state": "PENDING", "reason": "BeginTime", "at": desk.now()}
    said["observed"] = {**waits, "begins_at": to_text(later)}
    desk.write(
        "attempt", state="queued", raw_state="PENDING", reason="BeginTime", job_id=desk.other,
        job_name="mywork", journal=said, report={}, submitted_at=desk.now(), started_at=None,
    )  # fmt: skip


def nonsense(desk: Shared) -> None:
    desk.write("run", journal={**desk.read("run", "journal"), "counted_from": "x"})


def nonsense_in_the_report(desk: Shared) -> None:
    desk.write("attempt", report={"saved": "x", "rhythm": 3})


def read_before_the_start(desk: Shared) -> None:
    desk.write("source", offset_bytes=-5)


FALSIFIED: Final[list[Callable[[Shared], None]]] = [
    cancelled, not_held, ended_as_preempted, ended_as_failed, job_is_another, one_attempt_more,
    wants_a_standby, waits_for_a_time, nonsense, nonsense_in_the_report, read_before_the_start,
]  # fmt: skip


def nothing(_: Shared) -> None:
    pass


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Shared]:
    """Makes desks; a file stands for a server that others write in, too."""
    monkeypatch.setattr(DatabaseUrl, "is_own", property(lambda _: False))

    def made(name: str) -> Shared:
        (tmp_path / name).mkdir()
        return Shared(tmp_path / name)

    return made


def story(
    desk: Shared, falsify: Callable[[Shared], None], *, is_held: bool, ends_before: bool
) -> list[Any]:
    """What becomes of a run that is preempted, before or after others write into its rows, when it
    was rebuilt."""
    launched = desk.begin()
    run_dir = RunDir(launched.run_dir)
    if is_held:
        desk.say(launched.run_dir, Held(at=desk.clock.now(), by="me"))
        desk.tick()
    if ends_before:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=5)
        desk.look()
    falsify(desk)
    for _ in range(5):
        desk.clock.advance(MINUTE)
        desk.tick()
    alive = [name for name in desk.alive() if name != desk.other and not ends_before]
    files = [run_dir.cancel.exists(), desk.files(launched).notice.exists()]
    if not ends_before:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=5)
    with desk.ledger() as ledger:  # they may have hidden it
        rebuild(ledger, [run_dir])
    for _ in range(5):
        desk.clock.advance(MINUTE)
        desk.tick()
    alive += [name for name in desk.alive() if name != desk.other]
    said = [
        (each.record, getattr(each, "attempt", None), getattr(each, "action", None))
        for each in journal.read(run_dir)
        if each.record not in ("observed", "accounted")
    ]
    return [alive, files, said, [each for each in desk.slurm.calls if each == "start_now"]]


@pytest.mark.parametrize("ends_before", [False, True], ids=["runs", "ended"])
@pytest.mark.parametrize("falsify", FALSIFIED)
def test_what_is_done_follows_from_the_files(
    make: Callable[[str], Shared], falsify: Callable[[Shared], None], ends_before: bool
) -> None:
    is_held = falsify is not_held
    honest = story(make("honest"), nothing, is_held=is_held, ends_before=ends_before)
    assert story(make("told"), falsify, is_held=is_held, ends_before=ends_before) == honest


@pytest.mark.parametrize("falsify", [cancelled, one_attempt_more, waits_for_a_time])
def test_so_it_is_on_a_server(
    ledger_url: str, tmp_path: Path, falsify: Callable[[Shared], None]
) -> None:
    if ledger_url.startswith("sqlite"):
        pytest.skip("a file is its owner's alone")

    def made(name: str) -> Shared:
        (tmp_path / name).mkdir()
        desk = Shared(tmp_path / name)
        desk.settings = replace(desk.settings, ledger_url=ledger_url)
        return desk

    honest = story(made("honest"), nothing, is_held=False, ends_before=False)
    assert story(made("told"), falsify, is_held=False, ends_before=False) == honest


def test_a_job_has_not_vanished_for_it_is_looked_for_elsewhere(
    make: Callable[[str], Shared],
) -> None:
    desk = make("told")
    launched = desk.begin("{node_failures: 0}")
    desk.elsewhere = FakeScheduler(desk.clock, cluster_name="devcluster")
    for _ in range(9):
        desk.write("run", site="other")
        desk.clock.advance(MINUTE)
        desk.tick()
    records = [each.record for each in journal.read(RunDir(launched.run_dir))]
    assert records == ["intended", "submitted", "observed"]
    assert launched.job_id in desk.alive()


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_job_has_not_ended_as_a_row_says(
    make: Callable[[str], Shared], monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """Nobody but the job could say how it ended; and it was killed."""

    def accounting(*_: object, **__: object) -> list[JobInfo]:
        if is_silent:
            raise SchedulerUnavailable("slurmdbd is down")
        return []

    desk = make("told")
    launched = desk.begin("{}")
    desk.write("attempt", exit_code=0)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    with monkeypatch.context() as patch:
        patch.setattr(desk.slurm, "queue", lambda *_: [])
        patch.setattr(desk.slurm, "accounting", accounting)
        for _ in range(3):
            desk.clock.advance(1)
            desk.tick()
    desk.clock.advance(10 * MINUTE)
    assert list(desk.tick().sent) == [launched.run_id]


@pytest.mark.parametrize("falsify", [nonsense, nonsense_in_the_report, read_before_the_start])
def test_rows_that_hpcflow_never_wrote_are_rebuilt(
    make: Callable[[str], Shared], falsify: Callable[[Shared], None]
) -> None:
    desk = make("told")
    launched = desk.begin("{}")
    desk.end(launched.job_id, "FAILED", checkpoint=5, exit_code=1)
    desk.clock.advance(1)
    desk.tick()
    falsify(desk)
    sent = []
    for _ in range(4):
        desk.clock.advance(5 * MINUTE)
        sent += list(desk.tick().sent)
    assert sent == [launched.run_id]


def test_a_slow_job_is_not_called_stalled_for_a_row(make: Callable[[str], Shared]) -> None:
    desk = make("told")
    launched = desk.begin("{stall_after: 10m, stall_factor: 10}")
    for step in range(2, 6):
        desk.event(launched, "progress", train_step=step, metrics={})
        assert desk.waits(9) == []
    for step in range(6, 10):
        desk.event(launched, "progress", train_step=step, metrics={})
        assert desk.waits(20) == []
    report = desk.read("attempt", "report")
    report["rhythm"].update(gaps={"0": 10**6}, longest_s=0.1, start_up_s=0.1)
    desk.write("attempt", report=report)
    assert desk.waits(19) == []
    assert desk.acts(launched) == []
    assert launched.job_id in desk.alive()
    assert "stalled" not in str(desk.tick().problems)
