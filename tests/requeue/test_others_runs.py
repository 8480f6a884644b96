"""A ledger is common to many, and anybody can write another's name into it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Ended, Observed
from hpcflow.model.state import AttemptState, Cause
from hpcflow.projection import catch_up, rebuild
from hpcflow.requeue.daemon.loop import Daemon, ExitRequest
from hpcflow.requeue.round_context import RoundContext
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from tests.requeue.training import MINUTE, Training


@pytest.fixture
def desk(tmp_path: Path) -> Training:
    return Training(tmp_path)


class Mallory:
    """Somebody with a home and a run of their own, who says that it is ``victim``'s."""

    def __init__(
        self, folder: Path, victim: Training, *, job_id: str = "77", retry: str = "{}"
    ) -> None:
        folder.mkdir()
        self.desk = Training(folder)
        self.desk.config.write_text(self.desk.config.read_text() + f"retry: {retry}\n")
        self.launched = self.desk.launch()
        self.run_dir = self.desk.dir_of(self.launched)
        self.victim = victim
        self.freeze(user=victim.settings.user)
        self.write("intended", job_name="mywork")
        self.write("submitted", job_id=job_id)

    def freeze(self, **fields: str) -> None:
        frozen = json.loads(self.run_dir.run_json.read_text())
        self.run_dir.run_json.write_text(json.dumps({**frozen, **fields}))

    def write(self, record: str, **fields: Any) -> None:
        """Into the record of this kind in the journal."""
        lines = [json.loads(line) for line in self.run_dir.journal.read_text().splitlines()]
        changed = [{**line, **fields} if line["record"] == record else line for line in lines]
        self.run_dir.journal.write_text("".join(json.dumps(line) + "\n" for line in changed))

    def runs(self, job_id: str) -> None:
        seen = Observed(
            at=self.victim.clock.now(),
            attempt=1,
            job_id=job_id,
            state=AttemptState.RUNNING,
            raw_state="RUNNING",
            nodes=["n1"],
            source="queue",
        )
        journal.append(self.run_dir, seen)

    def preempted(self) -> None:
        at = self.victim.clock.now()
        end = Ended(
            at=at, attempt=1, cause=Cause.PREEMPTED, raw_state="PREEMPTED", ended_at=at, rule="x"
        )
        journal.append(self.run_dir, end)

    def project(self) -> None:
        """Into the ledger that both use."""
        with open_ledger(self.victim.settings.ledger_url) as ledger:
            catch_up(ledger, [self.run_dir])

    def files(self) -> dict[str, bytes]:
        paths = sorted(self.run_dir.path.rglob("*"))
        return {str(path): path.read_bytes() for path in paths if path.is_file()}


def test_what_others_say_is_ours_is_not_sent_by_us(desk: Training, tmp_path: Path) -> None:
    mallory = Mallory(tmp_path / "mallory", desk)
    mallory.preempted()
    mallory.project()
    before = mallory.files()
    for _ in range(3):
        desk.clock.advance(MINUTE)
        report = desk.tick()
        assert (report.sent, report.decisions, report.problems) == ({}, {}, {})
    assert mallory.files() == before
    assert desk.alive() == []


def test_a_job_of_ours_that_others_claim_is_not_ended(desk: Training, tmp_path: Path) -> None:
    job_id = desk.slurm._add("mywork", "#!/bin/bash\n", "gpu", list(desk.slurm.nodes))
    desk.slurm._advance()
    mallory = Mallory(tmp_path / "mallory", desk, job_id=job_id)
    mallory.runs(job_id)
    mallory.desk.event(mallory.launched, "started", job_id=job_id, nodes=["n1"])
    mallory.desk.event(mallory.launched, "progress", train_step=1, metrics={})
    mallory.project()
    before = mallory.files()
    assert desk.waits(40) == []
    assert mallory.files() == before
    assert desk.alive() == [job_id]


def test_no_standby_of_ours_is_sent_for_others(desk: Training, tmp_path: Path) -> None:
    job_id = desk.slurm._add("mywork", "#!/bin/bash\n", "gpu", list(desk.slurm.nodes))
    desk.slurm._advance()
    mallory = Mallory(tmp_path / "mallory", desk, job_id=job_id, retry="{standby: true}")
    mallory.runs(job_id)
    mallory.project()
    report = desk.tick()
    assert (report.standbys, report.problems, desk.alive()) == ({}, {}, [job_id])


def test_the_daemon_listens_to_no_jobs_of_others(desk: Training, tmp_path: Path) -> None:
    mine = desk.launch()
    desk.look()
    mallory = Mallory(tmp_path / "mallory", desk)
    mallory.runs("77")
    mallory.project()
    with open_ledger(desk.settings.ledger_url) as ledger:
        around = RoundContext(
            ledger, desk.settings, desk.clock, lambda _: desk.slurm, lambda _: desk.site
        )
        daemon = Daemon(around, ExitRequest(desk.clock), on_report=print, on_text=print)
        assert daemon._at_work() == [(str(mine.run_dir), 1)]


def test_a_begin_time_of_ours_that_others_claim_stays(desk: Training, tmp_path: Path) -> None:
    job_id = desk.slurm._add("mywork", "#!/bin/bash\n", "gpu", list(desk.slurm.nodes))
    desk.slurm.begin_at(job_id, desk.clock.now() + timedelta(seconds=121))
    mallory = Mallory(tmp_path / "mallory", desk, job_id=job_id)
    mallory.write("intended", restarts=1)
    mallory.project()
    for _ in range(2):
        desk.clock.advance(1)
        assert desk.tick().lifted == {}
    assert "start_now" not in desk.slurm.calls


def test_a_run_of_ours_that_others_say_is_elsewhere_is_not_looked_for_there(
    desk: Training, tmp_path: Path
) -> None:
    mine = desk.launch()
    desk.look()
    mallory = Mallory(tmp_path / "mallory", desk)
    taken = mallory.run_dir.path.with_name(mine.run_id)
    mallory.run_dir.path.rename(taken)
    mallory.run_dir = RunDir(taken, mallory.run_dir.record)
    mallory.freeze(run_id=mine.run_id, run_dir=str(taken))
    mallory.preempted()
    with open_ledger(desk.settings.ledger_url) as ledger:
        rebuild(ledger, [mallory.run_dir])
    before = mallory.files()
    desk.clock.advance(MINUTE)
    report = desk.tick()
    assert report.sent == {}
    assert mallory.files() == before
    (warning,) = report.warnings
    assert "its path in the ledger differs" in warning
    assert "hpcflow ledger rebuild" in warning
    assert str(taken) not in warning, "where, is what they chose"
    with open_ledger(desk.settings.ledger_url) as ledger:
        rebuild(ledger, [desk.dir_of(mine)])
    desk.slurm.end(mine.job_id, "PREEMPTED")
    assert list(desk.tick().sent) == [mine.run_id]


def test_what_others_put_in_the_place_of_a_run_directory_is_left_alone(
    desk: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = desk.launch()
    desk.look()
    desk.slurm.end(launched.job_id, "PREEMPTED")
    us = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: us + 1)
        for _ in range(3):
            desk.clock.advance(MINUTE)
            report = desk.tick()
            assert report.sent == {}
        assert report.warnings == [
            f"{launched.run_id}: its run directory now belongs to another user; skipped"
        ]
    assert list(desk.tick().sent) == [launched.run_id]


@pytest.mark.parametrize("row", ["state = 'hibernating'", "report = '[]'"])
def test_a_row_of_somebody_else_stops_nobody(desk: Training, row: str) -> None:
    """Of a newer hpcflow with one more word, or damaged."""
    mine, other = desk.launch(), desk.launch()
    desk.tick()
    desk.settings.home.scratch_link(other.run_id).unlink()
    with open_ledger(desk.settings.ledger_url) as ledger:
        sql = "UPDATE run SET user_name = 'bob' WHERE run_id = ?"
        ledger.connection().execute(sql, [other.run_id])
        sql = f"UPDATE attempt SET {row} WHERE run_id = ?"
        ledger.connection().execute(sql, [other.run_id])
    desk.clock.advance(2 * MINUTE)
    desk.end(mine.job_id, "PREEMPTED", checkpoint=100)
    assert list(desk.tick().sent) == [mine.run_id]


def test_a_run_whose_link_is_lost_is_named_with_what_to_type(desk: Training) -> None:
    launched = desk.launch()
    desk.look()
    link = desk.settings.home.scratch_link(launched.run_id)
    link.unlink()
    (warning,) = desk.tick().warnings
    assert launched.run_id in warning
    command = warning.split("make it again: ")[1]
    assert command == f"ln -s {shlex.quote(str(launched.run_dir))} {link}"
    assert os.system(command) == 0
    assert link.readlink() == launched.run_dir
    desk.slurm.end(launched.job_id, "PREEMPTED")
    report = desk.tick()
    assert (report.warnings, list(report.sent)) == ([], [launched.run_id])


def test_a_run_whose_record_is_lost_is_named_with_what_to_type(desk: Training) -> None:
    launched = desk.launch()
    desk.look()
    record = desk.settings.home.runs / launched.run_id
    shutil.rmtree(record)
    (warning,) = desk.tick().warnings
    assert warning.startswith(f"{launched.run_id}: skipped: it is yours, but its record {record}")
    assert "hpcflow restore --from URL" in warning
    assert desk.alive() == [launched.job_id]


def test_no_link_is_suggested_to_what_lies_in_another_run(desk: Training) -> None:
    """A store can put it there, and say in a run.json of its own that this is the place."""
    launched, other = desk.launch(), desk.launch()
    desk.look()
    desk.settings.home.scratch_link(launched.run_id).unlink()
    planted = launched.run_dir.rename(other.run_dir / "code" / launched.run_id)
    with open_ledger(desk.settings.ledger_url) as ledger:
        sql = "UPDATE run SET run_dir = ? WHERE run_id = ?"
        ledger.connection().execute(sql, [str(planted), launched.run_id])
    assert desk.tick().warnings == []


def test_many_lost_links_are_counted(desk: Training) -> None:
    for _ in range(5):
        link = desk.settings.home.scratch_link(desk.launch().run_id)
        desk.look()
        link.unlink()
    warnings = desk.look()
    assert len(warnings) == 4
    assert (
        "2 more runs of yours are skipped because of this; list them: hpcflow ledger check"
        in warnings[-1]
    )


def test_a_run_that_was_made_while_our_name_was_not_known_is_named_with_what_to_type(
    desk: Training,
) -> None:
    ada = desk.settings
    desk.settings = replace(ada, user="1000")
    launched = desk.launch()
    desk.settings = ada
    desk.end(launched.job_id, "PREEMPTED")
    (said,) = desk.tick().warnings
    assert f"{launched.run_id}: " in said
    assert f"names user '1000' and not {ada.user!r}" in said
    assert desk.alive() == []
    frozen = desk.dir_of(launched).run_json
    frozen.write_text(json.dumps({**json.loads(frozen.read_text()), "user": ada.user}))
    with open_ledger(ada.ledger_url) as ledger:
        rebuild(ledger, [desk.dir_of(launched)])
    report = desk.tick()
    assert (list(report.sent), report.warnings) == ([launched.run_id], [])


def test_of_many_such_runs_a_few_are_named(desk: Training) -> None:
    ada = desk.settings
    desk.settings = replace(ada, user="1000")
    for _ in range(5):
        desk.launch()
    desk.settings = ada
    *named, rest = desk.tick().warnings
    assert len(named) == 3
    assert rest.startswith("2 more runs of yours")
