"""A damaged database is said to be one, with what to type; nothing else ever comes of it."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from hpcflow.cli.main import main
from hpcflow.errors import LedgerError, NotFoundError
from hpcflow.ledger.codec import columns
from hpcflow.ledger.connection import VERSION_TABLE
from hpcflow.ledger.rows import PartRow
from hpcflow.ledger.store import open_ledger
from hpcflow.ledger.upgrade import upgrade
from hpcflow.ledger.url import parse_url
from hpcflow.model.state import AttemptState, Cause
from hpcflow.projection import catch_up, catch_up_home, check, rebuild
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import list_runs
from hpcflow.testing.cluster import Postgres
from tests.ledger import lines as say
from tests.ledger.databases import Databases
from tests.projection.files import grow, new_run

_BYTES_PER_FILE = 40


def a_life(root: Path) -> RunDir:
    """A run that was preempted once and goes on, with progress and checkpoints."""
    run_dir = new_run(root)
    observed = say.observed(1, AttemptState.RUNNING, 2, started_at=say.at(2), nodes=["n1", "n2"])
    grow(run_dir.journal, say.intended(1), say.submitted(1), observed)
    grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 5), say.intended(2, 6), say.submitted(2, 6))
    for number in (1, 2):
        events = run_dir.attempt(number).events
        grow(events, say.started(number, 2), say.progress(5, 3, loss=0.5, lr=1e-5))
        grow(events, say.checkpoint(5 * number, 4))
    return run_dir


def _parts(**said: object) -> str:
    return json.dumps([dict.fromkeys(columns(PartRow)) | said])


def look_at_everything(url: str, home: Home) -> None:
    """What ``ls``, ``show``, ``ledger check`` and ``ledger rebuild`` do."""
    with open_ledger(url) as ledger:
        catch_up_home(ledger, home)
        ledger.live_attempts(user="ada")
        ledger.runs()
        for run_dir in list_runs(home):
            with suppress(NotFoundError):  # another byte in its id makes it another run
                ledger.run(run_dir.path.name)
        check(ledger, list_runs(home))
        rebuild(ledger, list_runs(home))


@pytest.mark.parametrize("files", [60, pytest.param(1500, marks=pytest.mark.soak)])
def test_bytes_that_are_damaged_are_never_more_than_a_damaged_ledger(
    tmp_path: Path, files: int
) -> None:
    run_dirs = [a_life(tmp_path) for _ in range(20)]
    home, whole, path = Home(tmp_path / "home"), tmp_path / "whole.sqlite", tmp_path / "a.sqlite"
    with open_ledger(str(whole)) as ledger:
        catch_up(ledger, run_dirs)
    for run_dir in run_dirs[1:]:
        grow(run_dir.journal, say.ended(2, Cause.FAILED, 9))
    shutil.rmtree(run_dirs[0].path)
    data, dice = whole.read_bytes(), random.Random(7)
    said = []
    for _ in range(files):
        damaged = bytearray(data)
        for _ in range(dice.choice([1, 2, _BYTES_PER_FILE])):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            look_at_everything(str(path), home)
        except LedgerError as error:
            said.append(str(error))
    assert len(said) > files / 5, "the test did not damage much"
    assert [text for text in said if not ("hpcflow" in text and "Errno" not in text)] == []


@pytest.mark.parametrize(
    ("table", "garbage"),
    [
        ("run", "metrics = 'garbage'"),
        ("run", 'metrics = \'{"loss": "low"}\''),
        ("run", "metrics = 7"),
        ("run", "tags = '{}'"),
        ("run", "state = 'foo'"),
        ("run", "created_at = 'x'"),
        ("run", "created_at = '2026-03-01T12:00:00'"),
        ("run", "nodes = 'many'"),
        ("run", "run_dir = CAST(x'2f00' AS TEXT)"),
        ("run", "user_name = CAST(x'ff' AS TEXT)"),
        ("run", "site = x'ff'"),
        ("attempt", "state = 'foo'"),
        ("attempt", "cause = 'boredom'"),
        ("attempt", "journal = '[]'"),
        ("attempt", 'journal = \'{"observed": {"at": "x"}}\''),
        ("attempt", "report = '{\"metrics\": 3}'"),
        ("attempt", "parts = '{}'"),
        ("attempt", "parts = '[7]'"),
        ("attempt", "parts = '[{}]'"),
        ("attempt", f"parts = '{_parts(cost_usd='much')}'"),
        ("attempt", f"parts = '{_parts(gpu_hours=10**400)}'"),
        ("attempt", f"parts = '{_parts(gpu_hours=True)}'"),
        ("attempt", f"parts = '{_parts(account=7)}'"),
        ("checkpoint", "metrics = '[]'"),
        ("checkpoint", "created_at = '-'"),
        ("source", "offset_bytes = 'far'"),
    ],
)
def test_a_value_that_was_never_written_is_made_anew(
    tmp_path: Path, table: str, garbage: str
) -> None:
    run_dir, url = a_life(tmp_path), str(tmp_path / "ledger.sqlite")
    others = a_life(tmp_path)
    with open_ledger(url) as ledger:
        catch_up(ledger, [run_dir])
        for name in ("journal.jsonl", "attempts/0002/events.jsonl"):
            grow(run_dir.path / name, say.progress(6, 7) if "events" in name else say.resumed(9))
        catch_up(ledger, [others])
        said = f"UPDATE {table} SET {garbage} WHERE run_id = ?"
        ledger.connection().execute(said, [run_dir.path.name])
        if "x'ff' AS TEXT" in garbage:  # the driver itself reads none of the rows then
            with pytest.raises(LedgerError, match=r"is damaged.*\n.*rm .*&& hpcflow ledger") as it:
                look_at_everything(url, Home(tmp_path / "home"))
            assert not it.value.retryable
            return
        assert others.path.name in [view.run_id for view in ledger.runs()]
        catch_up(ledger, [run_dir, others])
        rebuild(ledger, [run_dir])
        assert check(ledger, [run_dir, others]) == []
    look_at_everything(url, Home(tmp_path / "home"))


def test_an_attempt_of_no_run_is_left_out(tmp_path: Path) -> None:
    with open_ledger(str(tmp_path / "ledger.sqlite")) as ledger:
        catch_up(ledger, [a_life(tmp_path)])
        ledger.connection().execute("PRAGMA foreign_keys = OFF")
        ledger.connection().execute("UPDATE attempt SET run_id = 'nobody'")
        assert ledger.live_attempts(user="ada") == []
        assert ledger.known(["nobody"]) == {}


@pytest.mark.parametrize("number", ["00\xff1", "0000", "", "none"])
def test_a_version_that_never_was_is_damage(tmp_path: Path, number: str) -> None:
    url = str(tmp_path / "ledger.sqlite")
    with open_ledger(url) as ledger:
        ledger.connection().execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", [number])
    with pytest.raises(LedgerError, match=r"damaged|hpcflow ledger upgrade"):
        open_ledger(url)
    with pytest.raises(LedgerError, match=r"is damaged.*\n.*hpcflow ledger rebuild"):
        upgrade(parse_url(url))


def test_a_rebuild_over_a_damaged_file_says_what_to_type(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = a_life(tmp_path)
    assert main(["ledger", "rebuild"]) == 0
    for path in home.glob("ledger.sqlite*"):
        path.unlink()
    (home / "ledger.sqlite").write_bytes(b"no database at all" * 1000)
    capsys.readouterr()
    assert main(["ledger", "rebuild"]) == 1
    said = capsys.readouterr().err
    assert f"rm {home / 'ledger.sqlite'} && hpcflow ledger rebuild" in said
    (home / "ledger.sqlite").unlink()
    assert main(["ledger", "rebuild"]) == 0
    assert main(["show", run_dir.path.name, "--json"]) == 0


@pytest.mark.postgres
@pytest.mark.parametrize("column", ["run.created_at", "attempt.submitted_at"])
def test_a_time_that_only_postgres_has_is_made_anew(
    tmp_path: Path, postgres_server: Postgres, column: str
) -> None:
    """Others may write it into a database that is shared."""
    databases = Databases(tmp_path, postgres_server)
    run_dir, url = a_life(tmp_path), databases.with_tables()
    table, name = column.split(".")
    for time in ("infinity", "-infinity", "294276-01-01 00:00Z", "4713-01-01 00:00Z BC"):
        with open_ledger(url) as ledger:
            rebuild(ledger, [run_dir])
            ledger.connection().execute(f"UPDATE {table} SET {name} = '{time}'")
            with pytest.raises(LedgerError, match=r"is damaged: .*\n.*ledger rebuild") as it:
                ledger.run(run_dir.path.name)
            assert not it.value.retryable
            assert len(ledger.runs()) == (table == "attempt")
            rebuild(ledger, [run_dir])
        look_at_everything(url, Home(tmp_path / "home"))
        with open_ledger(url) as ledger:
            ledger.connection().execute("DELETE FROM run")
    databases.drop()
