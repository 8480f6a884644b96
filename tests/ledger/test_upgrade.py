"""Every version of the tables that was ever released can be opened, or says what to do."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import conninfo
from sqlmodel import SQLModel

from hpcflow.errors import HpcflowError, InputError, LedgerError, LedgerVersionError
from hpcflow.ledger import migrations, tables
from hpcflow.ledger.connection import VERSION_TABLE, Connection
from hpcflow.ledger.rows import ROWS
from hpcflow.ledger.store import open_ledger
from hpcflow.ledger.upgrade import (
    ADVISORY_LOCK,
    HEAD,
    SQLITE_TABLES,
    make_engine,
    upgrade,
    version,
)
from hpcflow.ledger.url import parse_url
from hpcflow.testing.cluster import Postgres
from tests.ledger.sqlite_tables import of_the_migrations

SAVED = sorted((Path(__file__).parent / "saved").glob("*.sql"))


def test_the_newest_migration_is_the_one_that_the_code_expects() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert scripts.get_heads() == [HEAD]
    numbers = sorted(script.revision for script in scripts.walk_revisions())
    assert numbers == [f"{number:04d}" for number in range(1, len(numbers) + 1)]
    assert [path.stem for path in SAVED] == numbers, "save a database of every version"


def test_migrations_and_tables_agree(ledger_url: str) -> None:
    """In Postgres each table also has the column ``owner``, which is a part of each foreign key."""
    engine = make_engine(parse_url(ledger_url))
    is_sqlite = ledger_url.startswith("sqlite")

    def is_compared(_: object, name: str | None, kind: str, *__: object) -> bool:
        return is_sqlite or (kind != "foreign_key_constraint" and name != "owner")

    with engine.connect() as connection:
        options = {
            "version_table": VERSION_TABLE,
            "compare_type": True,
            "include_object": is_compared,
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, SQLModel.metadata) == []
    engine.dispose()


def test_a_new_sqlite_file_gets_the_tables_that_the_migrations_make(tmp_path: Path) -> None:
    assert SQLITE_TABLES.read_text() == of_the_migrations(tmp_path), "write them again: make golden"


def test_a_new_sqlite_file_needs_no_import_of_the_migrations(tmp_path: Path) -> None:
    """It would take a second."""
    code = f"""
import sys
from hpcflow.ledger.store import open_ledger
open_ledger({str(tmp_path / "ledger.sqlite")!r}).close()
assert not {{"alembic", "sqlalchemy"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_and_tables_agree() -> None:
    kinds = {"time": "UtcTime", "json": "JSON", "money": "Money", "bool": "Boolean"}
    assert {*ROWS, "lease"} == set(SQLModel.metadata.tables)
    for name, row_type in ROWS.items():
        columns = SQLModel.metadata.tables[name].columns
        assert [field.name for field in fields(row_type)] == [column.name for column in columns]
        for field, column in zip(fields(row_type), columns, strict=True):
            kind = field.metadata.get("kind", "")
            special = type(column.type).__name__ in kinds.values()
            assert special == bool(kind), column
            assert not kind or type(column.type).__name__ == kinds[kind], column
            assert column.nullable == ("None" in str(field.type)), column
    assert tables.Run.__tablename__ == "run"


def test_an_empty_database_is_created(database: str) -> None:
    connection = Connection(parse_url(database))
    assert version(connection) is None
    open_ledger(database).close()
    assert version(connection) == HEAD
    connection.close()


# Waits for a line, so that all begin at the same moment.
OPENER = """
import sys
from hpcflow.ledger.store import open_ledger
if sys.argv[1].startswith("postgresql"):  # SQLite's tables need none of it
    import hpcflow.ledger.tables, alembic.command
print("ready", flush=True)
sys.stdin.readline()
open_ledger(sys.argv[1]).close()
"""


def test_several_processes_create_it_at_once(database: str) -> None:
    argv = [sys.executable, "-c", OPENER, database]
    pipe = subprocess.PIPE
    openers = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    for opener in openers:
        opener.communicate()
    assert [opener.returncode for opener in openers] == [0, 0]


@pytest.mark.postgres
def test_an_upgrade_does_not_wait_for_ever_for_another_one(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.create_database("ledger_upgraded")
    monkeypatch.setattr("hpcflow.ledger.upgrade.BUSY_TIMEOUT_S", 0.2)
    other = Connection(parse_url(url))
    other.execute("SELECT pg_advisory_lock(?)", [ADVISORY_LOCK])
    with pytest.raises(LedgerError, match="lock timeout") as caught:
        open_ledger(url)
    assert caught.value.retryable
    other.close()
    open_ledger(url).close()
    postgres_server.drop_database("ledger_upgraded")


def _set_version(url: str, number: str) -> None:
    connection = Connection(parse_url(url))
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", [number])
    connection.close()


def test_older_tables_are_left_alone_until_somebody_says_so(ledger_url: str) -> None:
    _set_version(ledger_url, "0000")
    with pytest.raises(LedgerVersionError, match="hpcflow ledger upgrade") as caught:
        open_ledger(ledger_url)
    assert not caught.value.retryable
    assert isinstance(caught.value, LedgerError)


def test_newer_tables_ask_for_a_newer_hpcflow(ledger_url: str) -> None:
    _set_version(ledger_url, "9999")
    with pytest.raises(LedgerVersionError, match=r"update it: \S+installation\.md"):
        open_ledger(ledger_url)
    with pytest.raises(LedgerVersionError, match=r"update it: \S+installation\.md"):
        upgrade(parse_url(ledger_url))


def test_an_upgrade_of_what_is_up_to_date_does_nothing(database: str) -> None:
    upgrade(parse_url(database))
    upgrade(parse_url(database))
    open_ledger(database).close()


def test_tables_of_somebody_else_are_not_touched(database: str) -> None:
    connection = Connection(parse_url(database))
    connection.execute("CREATE TABLE run (theirs INTEGER)")
    with pytest.raises(LedgerError, match="cannot create the tables"):
        open_ledger(database)
    assert version(connection) is None  # all or nothing
    connection.execute("INSERT INTO run (theirs) VALUES (1)")
    connection.close()


@pytest.mark.parametrize(
    ("lines", "gpu_type"),
    [(["gpu:h100", "cpu", "gpu:a100"], "a100,h100"), (["gpu", "node"], "?"), (["cpu"], "")],
)
def test_bills_that_were_there_before_have_the_types_of_their_gpus(
    lines: list[str], gpu_type: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    bill = json.dumps({"accounted": {"charges": [{"kind": kind} for kind in lines]}})
    with sqlite3.connect(path) as raw:
        raw.executescript((SAVED[0].parent / "0004.sql").read_text())
        raw.execute("UPDATE attempt SET billed_by = 'accounting', journal = ?", [bill])
    raw.close()
    upgrade(parse_url(str(path)))
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT gpu_type FROM attempt").fetchall() == [(gpu_type,)]
    raw.close()


@pytest.mark.parametrize(
    "journal",
    [
        "[]", "null", '"x"', "torn {", "[" * 5000 + "]" * 5000, "9" * 5000, '{"accounted": 7}',
        '{"accounted": {"charges": 7}}', '{"accounted": {"charges": [7]}}',
        '{"accounted": {"charges": [{"kind": {}}]}}', '{"accounted": {"charges": [{}]}}',
        '{"accounted": {"charges": [{"kind": "gpu:\\ud800"}]}}',
        '{"accounted": {"charges": [{"kind": "gpu:\\u0000"}]}}',
        '{"accounted": {"charges": [{"kind": "gpu:' + "x" * 2_000_000 + '"}]}}',
    ],
    ids=lambda journal: journal[:50],
)  # fmt: skip
def test_a_malformed_bill_does_not_stop_the_upgrade(journal: str, tmp_path: Path) -> None:
    """In Postgres, another role may have written it."""
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((SAVED[0].parent / "0004.sql").read_text())
        raw.execute("UPDATE attempt SET billed_by = 'accounting', journal = ?", [journal])
        raw.commit()
    upgrade(parse_url(str(path)))
    with closing(sqlite3.connect(path)) as raw:
        told = raw.execute("SELECT DISTINCT gpu_type, account, parts FROM attempt").fetchall()
    assert told == [(None, None, None)]


@pytest.mark.parametrize(
    ("account", "found"), [("physics", "physics"), (None, None), (7, None), ("a\0", None)]
)
@pytest.mark.parametrize("billed_by", ["accounting", "events"])
def test_bills_that_were_there_before_have_their_account(
    account: object, found: str | None, billed_by: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    bill = json.dumps({"accounted": {"account": account}})
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((SAVED[0].parent / "0006.sql").read_text())
        raw.execute("UPDATE attempt SET billed_by = ?, journal = ?", [billed_by, bill])
        raw.commit()
    upgrade(parse_url(str(path)))
    with closing(sqlite3.connect(path)) as raw:
        told = raw.execute("SELECT account, parts FROM attempt").fetchall()
    assert told == [(found if billed_by == "accounting" else None, None)]


DECIDED = {"decided": {"action": "wait", "rule": "backoff", "why": "1 failure"}}


@pytest.mark.parametrize(
    ("text", "journal", "parts"),
    [
        ("held", {}, ("held", None, None)),
        ("standby: due", {}, ("settle_standby", None, None)),
        ("standby: wanted", {}, ("submit_standby", None, None)),
        ("standby: job 4711 waits", {}, ("await_standby", None, "job 4711")),
        ("cancelled: its job has not ended yet", {}, ("cancel_jobs", None, None)),
        ("notice: stalled", {}, ("notice", "stalled", None)),
        ("wait: backoff", DECIDED, ("wait", "backoff", "1 failure")),
        ("stop: budget", DECIDED, ("stop", "budget", None)),
        ("wait: budget project:x of 4.00 USD has no room for 3.00 USD", DECIDED,
         ("wait", "over_budget", "budget project:x of 4.00 USD has no room for 3.00 USD")),
        ("wait: backoff", "[]", ("wait", "backoff", None)),
        ("wait: backoff", "torn {", ("wait", "backoff", None)),
        ("wait: backoff", {"decided": 7}, ("wait", "backoff", None)),
        ("wait: backoff", {"decided": {**DECIDED["decided"], "why": "a\0\nb"}},
         ("wait", "backoff", "a\N{REPLACEMENT CHARACTER}\nb")),
    ],
)  # fmt: skip
def test_what_came_next_before_has_its_rule_and_its_reason(
    text: str, journal: object, parts: tuple[str | None, ...], tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((SAVED[0].parent / "0007.sql").read_text())
        said = journal if isinstance(journal, str) else json.dumps(journal)
        raw.execute("UPDATE run SET next_action = ?, journal = ?", [text, said])
        raw.commit()
    upgrade(parse_url(str(path)))
    with closing(sqlite3.connect(path)) as raw:
        told = raw.execute("SELECT next_action, next_rule, next_why FROM run").fetchall()
    assert told == [parts]


def test_what_came_next_of_a_stalled_run_has_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((SAVED[0].parent / "0007.sql").read_text())
        raw.execute("UPDATE run SET next_action = 'notice: stalled'")
        raw.execute("UPDATE attempt SET journal = ?", [json.dumps({"stall": {"why": "silent"}})])
        raw.commit()
    upgrade(parse_url(str(path)))
    with closing(sqlite3.connect(path)) as raw:
        told = raw.execute("SELECT next_action, next_rule, next_why FROM run").fetchall()
    assert told == [("notice", "stalled", "silent")]


@pytest.mark.parametrize("saved", SAVED, ids=[path.stem for path in SAVED])
def test_a_database_of_every_version_is_upgraded_with_its_rows(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as raw:
        raw.executescript(saved.read_text())
    raw.close()

    if saved.stem != HEAD:
        with pytest.raises(LedgerVersionError, match="hpcflow ledger upgrade"):
            open_ledger(str(path))
    upgrade(parse_url(str(path)))

    with open_ledger(str(path)) as ledger:
        (view,) = ledger.runs()
        detail = ledger.run(view.run_id)
        assert view.run_id == "digits-20260301-aaaaaaaa"
        assert view.state.value == "running"
        assert view.metrics == {"loss": 0.1}
        assert [attempt.job_id for attempt in detail.attempts] == ["101"]
        assert [saved.train_step for saved in detail.checkpoints] == [10]
        assert ledger.known([view.run_id])[view.run_id].sources[0].offset_bytes > 0


def test_a_url_that_sqlalchemy_cannot_read_is_an_error() -> None:
    with pytest.raises(LedgerError, match='invalid integer value "none"'):
        upgrade(parse_url("postgresql://ada:s3cr3t@127.0.0.1:none/x"))


@pytest.mark.parametrize("place", ["[::1", "[]", "[::1]1", "::1]", "[[::1]]"])
def test_a_url_that_libpq_would_quote_does_not_get_there(place: str) -> None:
    with pytest.raises(InputError, match="not well formed"):
        parse_url(f"postgresql://ada:s3cr3t@{place}/x")


@pytest.mark.parametrize("password", ["s3cr3t%00", "s3cr3t%0", "s3cr3t%zz", "s3 cr3t"])
def test_no_message_quotes_the_password(password: str) -> None:
    with pytest.raises(HpcflowError) as caught:
        upgrade(parse_url(f"postgresql://ada:{password}@127.0.0.1:1/x"))
    assert "cr3t" not in "".join(caught.value.parts())


@pytest.mark.parametrize("place", ["[::1]", "[::1]:5432", "[::1],[::2]:1,db", "%2Frun", ""])
def test_hosts_that_libpq_reads(place: str) -> None:
    conninfo.conninfo_to_dict(parse_url(f"postgresql://ada@{place}/x").dsn)
