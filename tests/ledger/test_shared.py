"""Damaged rows, in a ledger with runs of several users: none hides the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpcflow.errors import LedgerError
from hpcflow.ledger.codec import columns
from hpcflow.ledger.connection import VERSION_TABLE
from hpcflow.ledger.rows import ROWS
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.state import Cause, RunState
from hpcflow.projection import catch_up, catch_up_home, check, rebuild
from hpcflow.storage.layout import Home, RunDir
from tests.ledger import lines as say
from tests.projection.files import everything, grow, new_run

EVE = "eves-20260301-abcdefgh"
_EARLY, _LATE = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2020, 2040))

#: What another user may write into a row of theirs, that each database takes.
ROW: dict[str, str] = {
    "json that is none": "tags = '\"x\"'",
    "deep json": f"metrics = '{'[' * 3_000}{']' * 3_000}'",
    "json with a number without end": 'metrics = \'{"loss": 1e999, "x": "y"}\'',
    "json with a number that JSON has not": "metrics = '{\"loss\": 1e999}'",
    "json with a number that no float holds": f"metrics = '{{\"loss\": 1{'0' * 400}}}'",
    "json that is null": "tags = 'null'",
    "an unknown state": "state = 'exploded'",
    "an unknown cause": "cause = 'boredom'",
    "an endless text": f"name = '{'x' * 2_000_000}'",
}
ATTEMPT: dict[str, str] = {
    "an unknown cause of an end": "cause = 'boredom'",
    "nodes that are none": "nodes = '{}'",
    "a journal that is none": "journal = '[]'",
    "more money than there is": "cost_usd = '1e30'",
    "less money than there is": "on_demand_usd = '-1e400'",
    "a report that is none": "report = '7'",
    "an end that is none": "journal = '{\"ended\": 7}', cause = 'boredom'",
}
#: What only Postgres takes.
STRANGE: dict[str, str] = {
    "infinity": "created_at = 'infinity', journal_at = 'infinity'",
    "long ago": "created_at = '4713-01-01 00:00Z BC'",
    "far ahead": "created_at = '294276-01-01 00:00Z'",
    "money that is no number": "cost_usd = 'NaN', estimated_cost_usd = 'NaN'",
    "hours that are no number": "gpu_hours = 'NaN'",
    "hours without end": "gpu_hours = 'Infinity', epoch = '-Infinity'",
}


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def shared(ledger_url: str, warnings: list[str]) -> Iterator[Ledger]:
    with open_ledger(ledger_url, warnings.append) as ledger:
        yield ledger


@pytest.fixture
def run_dirs(tmp_path: Path, shared: Ledger) -> list[RunDir]:
    """Two of ada's runs, and a row of eve's as of the first."""
    made = [_a_life(tmp_path) for _ in range(2)]
    catch_up(shared, made)
    for table in ("run", "attempt", "checkpoint"):
        names = [name for name in columns(ROWS[table]) if name != "run_id"]
        values = ", ".join("'eve'" if name == "user_name" else name for name in names)
        shared.connection().execute(
            f"INSERT INTO {table} (run_id, {', '.join(names)}) "
            f"SELECT '{EVE}', {values} FROM {table} WHERE run_id = ?",
            [made[0].path.name],
        )
    return made


def _a_life(root: Path) -> RunDir:
    run_dir = new_run(root)
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 5), say.intended(2, 6), say.submitted(2, 6))
    for number in (1, 2):
        events = run_dir.attempt(number).events
        grow(events, say.started(number, 2), say.progress(5, 3, loss=0.5), say.checkpoint(5, 4))
    return run_dir


def look(ledger: Ledger) -> list[str]:
    """Everything that asks for rows of all users; the runs that ``ls --all`` shows."""
    ledger.bills(since=_EARLY, until=_LATE, filters={})
    ledger.spending(filters={})
    ledger.used(since=_EARLY)
    ledger.storing(["devcluster"], filters={})
    ledger.unsent()
    ledger.ends(list(Cause), since=_EARLY, until=_LATE)
    ledger.observed(frozenset(Cause), site="devcluster", partition="gpu", since=_EARLY, now=_LATE)
    ledger.of_others(user="ada")
    for user in ("ada", "eve"):
        ledger.jobs(user=user)
        ledger.live_attempts(user=user)
        ledger.running(user=user)
        ledger.due_bills(_LATE, user=user, limit=10)
        ledger.spending_unsettled(user=user)
    return [view.run_id for view in ledger.runs()]


def _write(ledger: Ledger, table: str, what: str, run_id: str) -> None:
    ledger.connection().execute(f"UPDATE {table} SET {what} WHERE run_id = ?", [run_id])


@pytest.mark.parametrize("what", [*ROW, *ATTEMPT, *STRANGE])
def test_a_damaged_row_of_another_user_hides_no_other(
    shared: Ledger, run_dirs: list[RunDir], warnings: list[str], what: str
) -> None:
    if what in STRANGE and shared.connection().is_sqlite:
        pytest.skip("only Postgres has such values")
    is_run = what not in ATTEMPT
    mine = {run_dir.path.name for run_dir in run_dirs}
    assert set(look(shared)) == {*mine, EVE}
    _write(shared, "run" if is_run else "attempt", ({**ROW, **ATTEMPT, **STRANGE})[what], EVE)
    assert set(look(shared)) == (mine if is_run else {*mine, EVE})
    look(shared)
    assert len(warnings) == 1, "of each run once"
    assert f"run {EVE} of user eve is left out" in warnings[0]
    assert "hpcflow ledger rebuild" in warnings[0]
    assert len(warnings[0]) < 500
    assert [live.run_id for live, _ in shared.live_attempts(user="ada")] == sorted(mine)


@pytest.mark.parametrize(
    ("what", "is_rebuilt"),
    [
        *((what, True) for what in (*ROW, *ATTEMPT, *STRANGE)),
        *((what, False) for what in ("json that is none", "a journal that is none", *STRANGE)),
    ],
)
def test_a_damaged_row_of_ones_own_is_made_anew_from_the_files(
    shared: Ledger, run_dirs: list[RunDir], tmp_path: Path, what: str, is_rebuilt: bool
) -> None:
    if what in STRANGE and shared.connection().is_sqlite:
        pytest.skip("only Postgres has such values")
    before = everything(shared, run_dirs)
    table = "attempt" if what in ATTEMPT else "run"
    _write(shared, table, {**ROW, **ATTEMPT, **STRANGE}[what], run_dirs[0].path.name)
    others = run_dirs[1].path.name
    assert others in look(shared)
    if is_rebuilt:
        rebuild(shared, run_dirs)
    else:
        grow(run_dirs[0].journal, b"{}\n")
        catch_up(shared, run_dirs)
    after = everything(shared, run_dirs)
    if is_rebuilt:
        assert after == before
    assert {*look(shared)} == {*(run_dir.path.name for run_dir in run_dirs), EVE}
    assert check(shared, run_dirs) == []
    del tmp_path


@pytest.mark.parametrize("state", ["completed", "running"])
def test_who_takes_the_id_of_my_run_takes_nothing_else(
    ledger_url: str, tmp_path: Path, state: str
) -> None:
    """A row that says that it is theirs, that it is over, and that all of it has been read."""
    run_dir = _a_life(tmp_path)
    home = Home(tmp_path / "home")
    run_id = run_dir.path.name
    with open_ledger(ledger_url) as ledger:
        catch_up(ledger, [run_dir])
        truth = everything(ledger, [run_dir])
        _write(ledger, "run", f"user_name = 'eve', state = '{state}', job_id = '1'", run_id)
        _write(ledger, "attempt", "state = 'ended', journal = '{}', report = '{}'", run_id)
        assert ledger.live_attempts(user="ada") == []
        catch_up_home(ledger, home, user="ada")
        assert everything(ledger, [run_dir]) == truth
        assert [live.run_id for live, _ in ledger.live_attempts(user="ada")] == [run_id]
        assert ledger.runs()[0].state is not RunState.COMPLETED


def test_a_damaged_row_of_a_purged_run_is_made_again_from_its_record(
    shared: Ledger, run_dirs: list[RunDir]
) -> None:
    run_id = run_dirs[0].path.name
    shutil.rmtree(run_dirs[0].path)
    _write(shared, "run", "tags = 'null'", run_id)
    assert run_id not in look(shared)
    rebuild(shared, run_dirs)
    assert {*look(shared)} == {*(run_dir.path.name for run_dir in run_dirs), EVE}


def test_a_run_of_another_user_in_my_home_stays_theirs(ledger_url: str, tmp_path: Path) -> None:
    run_dir = _a_life(tmp_path)
    with open_ledger(ledger_url) as ledger:
        catch_up(ledger, [run_dir])
        summary = catch_up_home(ledger, Home(tmp_path / "home"), user="eve")
        assert summary.changed == []
        assert ledger.owners([run_dir.path.name]) == {run_dir.path.name: "ada"}


@pytest.mark.postgres
@pytest.mark.parametrize(
    "harm",
    [
        *(f"UPDATE {VERSION_TABLE} SET version_num = '{it}'" for it in ("9999", "0001", "x", "")),
        f"DELETE FROM {VERSION_TABLE}",
        f"DROP TABLE {VERSION_TABLE}",
        "DROP TABLE attempt CASCADE",
        "ALTER TABLE run RENAME COLUMN tags TO flags",
    ],
)
def test_tables_that_somebody_has_changed_are_told_with_what_to_type(
    ledger_url: str, tmp_path: Path, harm: str
) -> None:
    if ledger_url.startswith("sqlite"):
        pytest.skip("nobody else writes into a file of one's own")
    run_dir = _a_life(tmp_path)
    with open_ledger(ledger_url) as ledger:
        catch_up(ledger, [run_dir])
        ledger.connection().execute(harm)
    with pytest.raises(LedgerError, match=r"hpcflow ledger|update it") as caught:
        _open_and_look(ledger_url)
    assert "is the server up?" not in str(caught.value)


def _open_and_look(url: str) -> None:
    with open_ledger(url) as ledger:
        ledger.runs()
        ledger.live_attempts(user="ada")
