"""The ledger is away, or held by others: runs go on when it is back, nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import LedgerError, next_step
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.store import open_ledger
from hpcflow.ledger.url import parse_url
from hpcflow.projection import check
from hpcflow.resources import install_extra
from hpcflow.storage.runs import list_runs
from hpcflow.testing.cluster import Postgres, poll
from tests.requeue.test_daemon import Process, preempted
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def journals(desk: Watched) -> dict[str, bytes]:
    return {each.path.name: each.journal.read_bytes() for each in list_runs(desk.settings.home)}


def assert_whole(desk: Watched, runs: int) -> None:
    """Each run has one job that is alive, none was sent twice, ledger and files agree."""
    desk.look()
    names = [job.job_name for job in desk.slurm._records()]
    assert len(set(names)) == len(names)
    assert len(desk.alive()) == runs
    assert "cancel" not in desk.slurm.calls, "a training was disturbed"
    with open_ledger(desk.settings.ledger_url) as ledger:
        assert check(ledger, list_runs(desk.settings.home)) == []


#: Where in a round the server stops: before the first statement that begins so.
MOMENTS = ["INSERT INTO lease", "BEGIN", "UPDATE run", "COMMIT", "FROM lease WHERE",
           "INSERT INTO source", "UPDATE lease"]  # fmt: skip


@pytest.mark.postgres
@pytest.mark.parametrize("moment", MOMENTS)
def test_postgres_that_stops_in_a_round_and_comes_back(
    desk: Watched, own_postgres: Postgres, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"down_{MOMENTS.index(moment)}"
    desk.settings = replace(desk.settings, ledger_url=own_postgres.create_database(name))
    is_up, rounds_down = True, 0
    with open_ledger(desk.settings.ledger_url) as ledger:
        runs = preempted(desk, 3)
        process = Process(desk, ledger)

        def stops(function: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(connection: Connection, sql: str, *args: Any) -> Any:
                nonlocal is_up
                is_due = moment != "UPDATE lease" or process.reports
                if is_up and is_due and moment in sql:
                    is_up = False
                    own_postgres.stop()
                return function(connection, sql, *args)

            return wrapped

        def sleep(_: float) -> None:
            nonlocal rounds_down
            rounds_down += not is_up
            if rounds_down == 2:
                own_postgres.start()
            assert rounds_down < 10, process.texts

        for each in ("execute", "execute_many", "rows"):
            monkeypatch.setattr(Connection, each, stops(getattr(Connection, each)))
        monkeypatch.setattr(process.told, "sleep", sleep)
        process.run(3)
        monkeypatch.undo()
    assert not is_up, f"no round has {moment}"
    own_postgres.start()
    said = " ".join(process.texts)
    assert "postgresql://" in said
    assert "trying again" in said or "the lease ends by itself" in said
    assert len(process.texts) <= 3, "it is said once"
    assert "password" not in said
    sent = [run_id for report in process.reports for run_id in report.sent]
    assert len(sent) == len(set(sent))
    desk.clock.advance(400)
    desk.tick()
    assert_whole(desk, len(runs))


class Locker:
    """Another process that holds the ledger, as a backup program does."""

    def __init__(self, path: Path) -> None:
        code = (
            "import sqlite3, sys; raw = sqlite3.connect(sys.argv[1], isolation_level=None);"
            "raw.execute('BEGIN EXCLUSIVE'); print('held', flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"

    def let_go(self) -> None:
        self._process.communicate()


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_sqlite_that_another_process_holds_for_longer_than_we_wait(
    desk: Watched, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held for four times the busy timeout, which is ten seconds otherwise. DELETE is what a home
    on NFS or Lustre has; there nobody can even read meanwhile."""
    monkeypatch.setattr("hpcflow.ledger.connection.BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setattr("hpcflow.ledger.connection.is_shared", lambda _: mode == "DELETE")
    path = desk.settings.home.ledger
    with open_ledger(desk.settings.ledger_url) as ledger:
        assert ledger.connection().rows("PRAGMA journal_mode") == [(mode.lower(),)]
        runs = preempted(desk, 2)
        before = journals(desk)
        process = Process(desk, ledger)
        locker, rounds = Locker(path), iter(range(100))

        def sleep(_: float) -> None:
            if next(rounds) == 3:
                locker.let_go()
                monkeypatch.setattr(process.told, "sleep", lambda _: None)
            else:
                assert journals(desk) == before, "it acted without a lease"

        monkeypatch.setattr(process.told, "sleep", sleep)
        process.run()
    assert next(rounds) == 4, "it never had to wait"
    assert set(process.reports[0].sent) == set(runs)
    (said,) = process.texts
    assert said.endswith("database is locked; trying again")
    assert_whole(desk, len(runs))


def test_sqlite_that_is_held_in_the_middle_of_a_round(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent stands in the journal, and is read when the ledger can be written again."""
    monkeypatch.setattr("hpcflow.ledger.connection.BUSY_TIMEOUT_S", 0.2)
    with open_ledger(desk.settings.ledger_url) as ledger:
        runs = preempted(desk, 3)
        process = Process(desk, ledger)
        submit, lockers = desk.slurm.submit, list[Locker]()

        def held(request: Any) -> Any:
            if not lockers:
                lockers.append(Locker(desk.settings.home.ledger))
            return submit(request)

        def sleep(_: float) -> None:
            lockers[0].let_go()

        monkeypatch.setattr(desk.slurm, "submit", held)
        monkeypatch.setattr(process.told, "sleep", sleep)
        process.run()
    assert any("database is locked" in text for text in process.texts)
    assert_whole(desk, len(runs))


def test_a_ledger_that_somebody_has_to_mend_is_said_with_what_to_type(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting alone does not mend it; whoever reads the log must see that."""
    with open_ledger(desk.settings.ledger_url) as ledger:
        runs = preempted(desk)
        process = Process(desk, ledger)
        ledger.close()
        whole = desk.settings.home.ledger.read_bytes()
        for path in desk.settings.home.path.glob("ledger.sqlite-*"):
            path.unlink()
        desk.settings.home.ledger.write_bytes(b"no database at all" * 1000)

        def mended(_: float) -> None:
            ledger.close()
            desk.settings.home.ledger.write_bytes(whole)

        monkeypatch.setattr(process.told, "sleep", mended)
        process.run()
    (said,) = process.texts
    assert "is damaged" in said
    assert "hpcflow ledger rebuild" in said.partition(" → ")[2], "in the same line"
    assert_whole(desk, len(runs))


def test_a_driver_that_is_not_there_is_said_with_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match="has no Postgres driver") as caught:
        Connection(parse_url("postgresql://nowhere/ledger"))
    assert next_step(caught.value) == f" → install it: {install_extra('postgres')}"


def test_a_daemon_that_is_started_before_its_database_waits_for_it(tmp_path: Path) -> None:
    """A machine that boots starts both at once."""
    log, ledger = tmp_path / "log", tmp_path / "a-folder" / "ledger.sqlite"
    ledger.parent.write_text("in the way")
    argv = [sys.executable, "-m", "hpcflow.cli.main", "daemon", "--interval", "1"]
    home = {"HPCFLOW_HOME": str(tmp_path / "home"), "HPCFLOW_LEDGER": f"sqlite:///{ledger}"}
    with log.open("wb") as out:
        process = subprocess.Popen(argv, env={**os.environ, **home}, stdout=out, stderr=out)
    try:
        poll(lambda: "trying again" in log.read_text(), 120, "it does not say that it waits")
        ledger.parent.unlink()

        def has_lease() -> bool:
            try:
                with closing(sqlite3.connect(ledger)) as raw:
                    return bool(raw.execute("SELECT 1 FROM lease").fetchall())
            except sqlite3.Error:
                return False

        poll(has_lease, 120, "it never went on")
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


def test_a_ledger_that_is_made_anew_under_a_daemon_is_the_one_it_goes_on_with(
    desk: Watched,
) -> None:
    """``rm ledger.sqlite && hpcflow ledger rebuild``, as a message says."""
    with open_ledger(desk.settings.ledger_url) as ledger:
        (first,) = preempted(desk)
        process = Process(desk, ledger)
        process.run()
        for path in desk.settings.home.path.glob("ledger.sqlite*"):
            path.unlink()
        (second,) = preempted(desk)
        process.run()
    assert [list(report.sent) for report in process.reports] == [[first], [second]]
    with open_ledger(desk.settings.ledger_url) as anew:
        assert anew.run_ids() == {first, second}, "it wrote into a file that nobody can open"
    assert_whole(desk, 2)
