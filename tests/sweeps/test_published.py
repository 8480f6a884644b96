"""What Optuna's own tools show of a sweep is what its journal says, and never more than a view."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import sqlite3
import stat
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpcflow.model.sweep_records import Retried
from hpcflow.settings import Settings, load_settings
from hpcflow.sweeps.published.place import schema_of
from hpcflow.sweeps.published.publish import shown_study_url, study_url
from tests.cluster_fixture import small_disk
from tests.sweeps import publish_driver
from tests.sweeps.publishing import START, Searched

TREE = Path(__file__).parents[2]
BUSY_S = 60.0  # it takes 3; far more is a wait without end


@pytest.fixture
def sweep(tmp_path: Path) -> Searched:
    """A sweep with a SQLite ledger, and nothing asked."""
    return Searched(tmp_path, f"sqlite:///{tmp_path}/ledger.sqlite")


SCHEMA = schema_of(load_settings({"HOME": "/nowhere"}))


def settings_with(ledger: str) -> Settings:
    return load_settings({"HPCFLOW_HOME": "/nowhere", "HOME": "/", "HPCFLOW_LEDGER": ledger})


def statements(path: Path, *sql: str) -> None:
    """What somebody else does to the database."""
    connection = sqlite3.connect(path, isolation_level=None)
    for each in sql:
        connection.execute(each)
    connection.close()


# What is shown.


def test_optuna_shows_what_the_journal_says(sweep: Searched) -> None:
    sweep.grows(9)
    sweep.reports(4, (11, None), (12, 0.875))
    assert sweep.publish() is None
    sweep.require_same()
    study, best = sweep.study(), sweep.progress.best()
    assert best is not None
    assert (study.best_trial.number, study.best_value) == (best.number, 0.507)
    assert study.best_params == best.params
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert study.metric_names == ["accuracy"]


def test_several_objectives_are_shown_by_their_names(tmp_path: Path) -> None:
    both: list[dict[str, str]] = [
        {"metric": "accuracy", "direction": "maximize"},
        {"metric": "loss", "direction": "minimize"},
    ]
    more: dict[str, Any] = {"objective": None, "objectives": both, "pruner": "none"}
    sweep = Searched(tmp_path, f"sqlite:///{tmp_path}/ledger.sqlite", **more)
    for values in ((0.9, 0.3), (0.8, 0.1), (0.7, 0.2)):
        sweep.tells(sweep.asks(), "complete", *values)
    assert sweep.publish() is None
    sweep.require_same()
    study = sweep.study()
    assert study.metric_names == ["accuracy", "loss"]
    assert [trial.number for trial in study.best_trials] == [0, 1]


def test_a_trial_that_went_on_since_is_brought_up_to_date(sweep: Searched) -> None:
    sweep.grows(5)
    assert sweep.publish() is None
    sweep.reports(0, (11, 0.9), (12, None))
    assert sweep.publish() is None
    sweep.require_same()
    sweep.tells(0, "complete", 0.95)
    sweep.tells(4, "failed")
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.require_same()
    assert sweep.study().best_value == 0.95


def test_what_a_run_said_that_failed_gives_way_to_the_one_that_was_trained_anew(
    sweep: Searched,
) -> None:
    sweep.grows(1, points=5)
    assert sweep.publish() is None
    (failed,) = sweep.progress.trials[0].all_runs
    sweep.records.append(
        Retried(at=START, trial=0, failed=failed, run="search-t0-20260301-bbbbbbbb")
    )
    sweep.reports(0, (1, 0.25), (2, 0.375))
    assert sweep.publish() is None
    sweep.require_same()
    assert sweep.study().trials[0].intermediate_values == {1: 0.25, 2: 0.375}


def test_a_sweep_without_a_trial_is_a_study_without_one(sweep: Searched) -> None:
    assert sweep.publish() is None
    assert sweep.study().trials == []


def test_the_pickles_of_cmaes_stay_in_the_journal(sweep: Searched) -> None:
    attrs = {"cma:optimizer:0": "80049503", "completed_rung_0": 0.5}
    sweep.asks(attrs=attrs, study_attrs={"cma:n_restarts": 1, "nsga2:x": [1]})
    sweep.judges(0, 1, **{"cma:generation": 3})
    assert sweep.publish() is None
    assert b"cma:" not in sweep.database.read_bytes()
    (trial,) = sweep.study().trials
    assert trial.system_attrs["completed_rung_0"] == 0.5
    assert sweep.study_attrs()["nsga2:x"] == [1]


def test_notes_of_people_stay(sweep: Searched) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    study = sweep.study()
    study._storage.set_study_system_attr(study._study_id, "dashboard:0:note:ver", 1)
    sweep.reports(0, (11, 0.9))
    assert sweep.publish() is None
    assert sweep.study_attrs()["dashboard:0:note:ver"] == 1


def test_the_file_is_beside_the_ledger_and_for_its_owner_only(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        sweep = Searched(tmp_path, f"sqlite:///{tmp_path}/deep/down/ledger.sqlite")
        sweep.grows(1)
        assert sweep.publish() is None
    finally:
        os.umask(previous)
    path = tmp_path / "deep" / "down" / "studies.sqlite"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(sweep.sweep_dir.published.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["studies.sqlite"], "and nothing else"


@pytest.mark.parametrize("name", ["plain", "it's $(touch owned) %20 'x' #", "{lr}?mode=ro&", "ü"])
def test_any_folder_will_do(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    sweep = Searched(folder, f"sqlite:///{folder}/ledger.sqlite")
    sweep.grows(2)
    assert sweep.publish() is None
    assert (folder / "studies.sqlite").exists()
    sweep.require_same()
    typed = f"import optuna; print(len(optuna.load_study(study_name={sweep.sweep_id!r}, "
    typed += f"storage={shown_study_url(sweep.settings)!r}).trials))"
    done = subprocess.run([sys.executable, "-c", typed], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr


def test_sweeps_of_one_ledger_share_a_file(sweep: Searched, tmp_path: Path) -> None:
    other = Searched(tmp_path, sweep.settings.ledger_url, name="other")
    sweep.grows(3)
    other.grows(5)
    for each in (sweep, other):
        assert each.publish() is None
    sweep.require_same()
    other.require_same()


@pytest.mark.parametrize(
    ("ledger", "opened", "shown"),
    [
        ("/a/ledger.sqlite", "sqlite:////a/studies.sqlite", "sqlite:////a/studies.sqlite"),
        (
            "postgresql://ada:s%40fe@db:5433/group?sslmode=require&password=other",
            "postgresql+psycopg://ada:s%40fe@db:5433/group?sslmode=require&password=other"
            f"&options=-csearch_path%3D{SCHEMA}",
            "postgresql+psycopg://ada@db:5433/group?sslmode=require"
            f"&options=-csearch_path%3D{SCHEMA}",
        ),
        (
            "postgresql:///group?options=-cgeqo%3Doff",
            f"postgresql+psycopg:///group?options=-cgeqo%3Doff%20-csearch_path%3D{SCHEMA}",
            f"postgresql+psycopg:///group?options=-csearch_path%3D{SCHEMA}",
        ),
    ],
)
def test_urls_are_for_optuna_or_for_people(ledger: str, opened: str, shown: str) -> None:
    settings = settings_with(ledger)
    assert study_url(settings) == opened
    assert shown_study_url(settings) == shown


# What it costs.


def test_a_round_without_news_imports_neither_optuna_nor_sqlalchemy(sweep: Searched) -> None:
    sweep.grows(3)
    assert sweep.publish() is None
    code = """
import pickle, sys
from hpcflow.sweeps.published.publish import publish
said = publish(*pickle.load(sys.stdin.buffer))
print(said, [name for name in ("optuna", "sqlalchemy") if name in sys.modules])
"""
    given = (sweep.sweep_dir, sweep.sweep_id, sweep.progress, sweep.settings)
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(given), capture_output=True, cwd=TREE
    )
    assert done.stdout == b"None []\n", done.stderr


def test_one_trial_that_changed_among_many_is_the_only_one_that_is_written(
    sweep: Searched,
) -> None:
    sweep.grows(300, points=20)
    assert sweep.publish() is None
    before = _row_ids(sweep.database)
    sweep.reports(200, (21, 0.9))
    assert sweep.publish() is None
    after = _row_ids(sweep.database)
    new = after["trial_intermediate_values"] - before["trial_intermediate_values"]
    assert len(new) == 1
    assert len(after["trial_params"] - before["trial_params"]) <= 4


def _row_ids(path: Path) -> dict[str, set[tuple[Any, ...]]]:
    """Whole rows: an id may be given again after its row was deleted."""
    connection = sqlite3.connect(path)
    tables = ("trial_intermediate_values", "trial_params")
    found = {t: set(connection.execute(f"SELECT * FROM {t}").fetchall()) for t in tables}
    connection.close()
    return found


# Whoever is killed in between.


def test_killed_at_any_change_it_doubles_and_loses_nothing(tmp_path: Path) -> None:
    ledger = "sqlite:///{folder}/ledger.sqlite"
    argv = [sys.executable, "-m", "tests.sweeps.publish_driver", str(tmp_path), ledger]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=TREE)
    assert done.returncode == 0, done.stderr
    changes = int(done.stdout)
    assert changes > 30, "tables, a study, and its trials are more than that"
    for number in range(changes, publish_driver.STRIDE, -publish_driver.STRIDE):
        sweep = publish_driver.sweep_of(tmp_path, ledger, number)
        publish_driver.first(sweep)
        publish_driver.later(sweep)
        sweep.require_same()


def test_two_at_once_double_nothing(sweep: Searched) -> None:
    sweep.grows(40)
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            sweep.publish()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert sweep.publish() is None
    sweep.require_same()


# What it never believes.


def test_what_is_remembered_may_be_lost_or_be_nonsense(sweep: Searched) -> None:
    sweep.grows(3)
    for content in (None, "", "[]", '{"place": 7}', "\0"):
        assert sweep.publish() is None
        if content is None:
            sweep.sweep_dir.published.unlink()
        else:
            sweep.sweep_dir.published.write_text(content)
    sweep.reports(0, (11, 0.9))
    assert sweep.publish() is None
    sweep.require_same()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM trials WHERE number = 1",
        "DELETE FROM trials",
        "UPDATE trials SET number = 2 WHERE number = 1",
        "INSERT INTO trials (number, study_id, state) VALUES (5, 1, 'RUNNING')",
        "INSERT INTO trials (number, study_id, state) VALUES (77, 1, 'RUNNING')",
        "DELETE FROM trial_system_attributes",
        "UPDATE trial_system_attributes SET value_json = 'nonsense'",
    ],
)
def test_a_study_that_others_have_changed_is_put_right_with_the_next_news(
    sweep: Searched, sql: str
) -> None:
    sweep.grows(5)
    assert sweep.publish() is None
    statements(sweep.database, sql)
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.require_same()


@pytest.mark.parametrize("table", ["trial_system_attributes", "study_system_attributes"])
def test_what_others_have_written_takes_no_memory(sweep: Searched, table: str) -> None:
    sweep.grows(5)
    assert sweep.publish() is None
    statements(sweep.database, f"UPDATE {table} SET value_json = hex(zeroblob(20000000))")
    sweep.grows(2)
    tracemalloc.start()
    try:
        assert sweep.publish() is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000
    sweep.require_same()


def test_a_study_that_was_deleted_is_made_again_with_the_next_news(sweep: Searched) -> None:
    sweep.grows(5)
    assert sweep.publish() is None
    optuna.delete_study(study_name=sweep.sweep_id, storage=sweep.study()._storage)
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.require_same()


def test_a_deleted_database_is_made_again_without_any_news(sweep: Searched) -> None:
    sweep.grows(5)
    assert sweep.publish() is None
    sweep.database.unlink()
    assert sweep.publish() is None
    sweep.require_same()


def test_another_ledger_gets_the_study_too(sweep: Searched, tmp_path: Path) -> None:
    sweep.grows(5)
    assert sweep.publish() is None
    moved = Searched(tmp_path, f"sqlite:///{tmp_path}/elsewhere/ledger.sqlite")
    moved.records = sweep.records
    assert moved.publish() is None
    moved.require_same()


# What can be wrong: said, and never raised.


def warning_of(sweep: Searched) -> str:
    """What a publishing says that does not work. It never hangs."""
    begun = time.monotonic()
    said = sweep.publish()
    assert time.monotonic() - begun < BUSY_S
    assert said is not None
    assert " → " in said
    return said


@pytest.mark.parametrize("begin", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"])
def test_a_locked_database_is_given_up_soon_and_caught_up_later(
    sweep: Searched, begin: str
) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.grows(2)
    other = sqlite3.connect(sweep.database, isolation_level=None)
    other.execute(begin)
    said = warning_of(sweep)
    assert "database is locked" in said
    assert f"fuser -v {sweep.database}" in said
    other.close()
    assert sweep.publish() is None
    sweep.require_same()


def test_a_damaged_database_can_be_deleted(sweep: Searched) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.database.write_bytes(b"no database " * 1000)
    sweep.grows(1)
    said = warning_of(sweep)
    assert f"rm {sweep.database}" in said
    subprocess.run(["rm", str(sweep.database)], check=True)
    assert sweep.publish() is None
    sweep.require_same()


def test_a_folder_in_its_place_is_a_warning(sweep: Searched) -> None:
    sweep.database.mkdir()
    sweep.grows(1)
    assert "ls -la" in warning_of(sweep)


def test_a_full_disk_is_a_warning_and_caught_up_later(sweep: Searched, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with small_disk(small, "600k"):
        sweep = Searched(tmp_path, f"sqlite:///{small}/ledger.sqlite")
        sweep.grows(2)
        assert sweep.publish() is None
        filler = small / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        sweep.grows(100)
        assert f"df -h {small}" in warning_of(sweep)
        filler.unlink()
        assert sweep.publish() is None
        sweep.require_same()


@pytest.mark.parametrize("published_before", [True, False])
def test_a_disk_that_cannot_be_written_is_a_warning(tmp_path: Path, published_before: bool) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with small_disk(small, "2m"):
        sweep = Searched(tmp_path, f"sqlite:///{small}/ledger.sqlite")
        sweep.grows(2)
        if published_before:
            assert sweep.publish() is None
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        sweep.grows(2)
        assert f"ls -la {small}" in warning_of(sweep)


def test_tables_of_an_older_optuna_are_upgraded_by_what_the_warning_says(sweep: Searched) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    statements(
        sweep.database,
        "UPDATE alembic_version SET version_num = 'v3.0.0.d'",
        "DROP INDEX ix_trials_study_id",
    )
    sweep.grows(2)
    said = warning_of(sweep)
    assert "older Optuna" in said
    typed = shlex.split(said.rpartition("→ ")[2])
    assert typed == ["optuna", "storage", "upgrade", "--storage", f"sqlite:///{sweep.database}"]
    program = Path(sys.executable).with_name("optuna")
    subprocess.run([str(program), *typed[1:]], check=True, capture_output=True)
    assert sweep.publish() is None
    sweep.require_same()


def test_tables_from_before_optuna_counted_its_versions_are_refused(sweep: Searched) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    statements(
        sweep.database, "DROP TABLE alembic_version", "UPDATE version_info SET schema_version = 11"
    )
    sweep.grows(2)
    assert "optuna storage upgrade --storage" in warning_of(sweep)


def test_tables_of_a_newer_optuna_ask_for_it(sweep: Searched) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    statements(sweep.database, "UPDATE alembic_version SET version_num = 'v9.0.0.a'")
    sweep.grows(2)
    said = warning_of(sweep)
    assert "newer Optuna" in said
    assert "pip install --upgrade optuna" in said


def test_what_was_left_for_the_next_round_follows(
    sweep: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcflow.sweeps.published.database._TRIALS_AT_ONCE", 4)
    monkeypatch.setattr("hpcflow.sweeps.published.database._ENOUGH_S", 0.0)
    sweep.grows(10)
    said = sweep.publish()
    assert said is not None
    assert "4 of 10 trials" in said
    assert len(sweep.study().trials) == 4
    assert "8 of 10" in (sweep.publish() or "")
    assert sweep.publish() is None
    sweep.require_same()


def test_a_study_is_remembered_as_published_only_when_it_is(sweep: Searched) -> None:
    sweep.grows(1)
    sweep.database.mkdir()
    warning_of(sweep)
    assert not sweep.sweep_dir.published.exists()
    sweep.database.rmdir()
    assert sweep.publish() is None
    assert json.loads(sweep.sweep_dir.published.read_text())["trials"] == 1
