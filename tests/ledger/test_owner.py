"""Two roles in one Postgres: each changes its own rows alone, whatever the other one writes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from hpcflow.cli.session import Session
from hpcflow.errors import LedgerError, NotFoundError, StorageError
from hpcflow.ledger import codec
from hpcflow.ledger.codec import columns
from hpcflow.ledger.connection import RELATIONS, VERSION_TABLE
from hpcflow.ledger.lease import acquire, look
from hpcflow.ledger.rows import PartRow
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.ledger.upgrade import upgrade
from hpcflow.ledger.url import parse_url
from hpcflow.model.state import Cause
from hpcflow.projection import catch_up, check, rebuild
from hpcflow.storage.layout import RunDir
from hpcflow.testing.cluster import Postgres
from tests.ledger import lines as say
from tests.ledger.roles import SharedServer
from tests.ledger.shared import NOW, ada, copied, database, eve, run_dir, server, warnings
from tests.projection.files import everything, grow

__all__ = ["ada", "database", "eve", "run_dir", "server", "warnings"]

pytestmark = pytest.mark.postgres

_EARLY, _LATE = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2020, 2040))
_TABLES: Final = [name for name in RELATIONS if name not in ("mirror_lag", VERSION_TABLE)]


#: What eve tries with the rows of ada.
ATTACKS: Final[dict[str, list[str]]] = {
    "update": [f"UPDATE {table} SET owner = owner" for table in _TABLES],
    "delete": [f"DELETE FROM {table}" for table in _TABLES],
    "copies": [copied(table) for table in _TABLES],
    "copies that say something else": [
        copied("run", state="'cancelled'", next_action="'cancel'", site="'x'", run_dir="'/etc'"),
        copied("attempt", state="'ended'", cause="'completed'", job_id="'7'", journal="'{}'::json"),
        copied("checkpoint", train_step="10", removed="'person'"),
        copied("lease", holder="'eve'", expires_at="'2040-01-01'"),
    ],
    "a run that ada's rows would belong to": [copied("run"), "DELETE FROM run"],
    "numbers out of range": [
        copied(
            "run", metrics="'{\"loss\": 1e999}'::json", tags="'7'::json", created_at="'infinity'"
        ),
        copied(
            "attempt", cost_usd="'NaN'", report="'{\"usage\": 1e999}'::json", job_id="'12_[--]'"
        ),
    ],
}


@pytest.mark.parametrize("kind", ATTACKS)
def test_nothing_that_eve_writes_changes_what_ada_acts_on(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir, kind: str
) -> None:
    run_id = run_dir.path.name
    before = _acted_on(ada, run_dir)
    server.as_eve(database, *ATTACKS[kind])
    assert _acted_on(ada, run_dir) == before
    rebuild(ada, [run_dir])
    assert check(ada, [run_dir]) == []
    assert ada.run(run_id).run.user == "ada"


def _acted_on(ledger: Ledger, run_dir: RunDir) -> Any:
    """What commands and the daemon act by."""
    ids, user = [run_dir.path.name], "ada"
    known = ledger.known(ids)
    return [
        everything(ledger, [run_dir]),
        known,
        ledger.live_attempts(user=user),
        ledger.running(user=user),
        ledger.undecided(_LATE, user=user),
        ledger.alive_due("cancel", user=user),
        ledger.due("cancel", _LATE, user=user),
        ledger.due_bills(_LATE, user=user, limit=10),
        ledger.spending(run_ids=ids),
        ledger.spending(filters={"user_name": user}),
        ledger.spending_unsettled(user=user),
        ledger.spending_under_way(user=user),
        ledger.checkpoints(ids),
        ledger.mirrored(ids),
        ledger.how_far(ids),
        ledger.bytes_read(ids),
        ledger.owners(ids),
        ledger.run_ids(),
        ledger.unsettled(_LATE),
        ledger.jobs(user=user),
        ledger.sites_unsettled(user=user),
        ledger.at_work(user=user, limit=10),
        ledger.used(run_id=ids[0]),
        ledger.runs(),
        look(ledger, "daemon"),
    ]


@pytest.mark.usefixtures("run_dir")
def test_eve_writes_no_row_that_says_it_is_adas(server: SharedServer, database: str) -> None:
    for table in ("run", "attempt", "checkpoint", "source", "lease"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            server.as_eve(database, copied(table, owner=f"'{server.ada}'"))


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE run CASCADE",
        "ALTER TABLE run DISABLE ROW LEVEL SECURITY",
        "DROP POLICY own ON run",
        "CREATE TRIGGER mine BEFORE INSERT ON run FOR EACH ROW "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE TABLE public.theirs (run_id text, owner name, "
        "FOREIGN KEY (run_id, owner) REFERENCES run)",
        f"UPDATE {VERSION_TABLE} SET version_num = '9999'",
        "SET row_security = off; DELETE FROM run",
    ],
)
@pytest.mark.usefixtures("run_dir")
def test_eve_changes_no_table(server: SharedServer, database: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        server.as_eve(database, statement)


def test_a_role_that_sees_all_rows_by_default_acts_by_its_own(
    server: SharedServer, database: str, run_dir: RunDir
) -> None:
    server.administer(f"ALTER ROLE {server.eve} SET hpcflow.everyone = 'on'")
    with open_ledger(server.url(database, server.eve)) as ledger:
        assert ledger.run_ids() == set()
        assert [each.run_id for each in ledger.runs(everyone=True)] == [run_dir.path.name]
    server.administer(f"ALTER ROLE {server.eve} RESET hpcflow.everyone")


def test_each_has_a_run_of_the_same_id(ada: Ledger, eve: Ledger, run_dir: RunDir) -> None:
    run_id = run_dir.path.name
    catch_up(eve, [run_dir])
    grow(run_dir.journal, say.ended(2, Cause.COMPLETED, 30))
    catch_up(eve, [run_dir])
    assert ada.run(run_id).run.state.value == "running"
    assert eve.run(run_id).run.state.value == "completed"
    catch_up(ada, [run_dir])
    assert ada.run(run_id).run.state.value == "completed"
    eve.connection().execute("DELETE FROM run")
    assert ada.run(run_id).run.state.value == "completed"


@pytest.mark.usefixtures("run_dir")
def test_each_acts_as_a_daemon_of_their_own(ada: Ledger, eve: Ledger) -> None:
    lease = acquire(eve, "daemon", holder="eve", host="h", pid=2, ttl_s=60, now=NOW)
    assert lease is not None
    assert lease.fence == 1
    found = look(ada, "daemon")
    assert found is not None
    assert found.holder == "ada"


#: What reads the rows of all, as ids of runs.
EVERYONE: Final[dict[str, Callable[[Ledger], set[str]]]] = {
    "runs": lambda ledger: {each.run_id for each in ledger.runs(everyone=True)},
    "bills": lambda ledger: {
        each.run_id for each in ledger.bills(since=_EARLY, until=_LATE, filters={}, everyone=True)
    },
    "spending": lambda ledger: {each.run_id for each in ledger.spending(filters={}, everyone=True)},
    "used": lambda ledger: {each.run_id for each in ledger.used(since=_EARLY, everyone=True)},
    "storing": lambda ledger: {
        each.run_id for each in ledger.storing(["devcluster"], filters={}, everyone=True)
    },
    "ends": lambda ledger: {
        each.run_id for each in ledger.ends(list(Cause), since=_EARLY, until=_LATE)
    },
}


@pytest.mark.parametrize("what", EVERYONE)
def test_lists_and_reports_show_the_runs_of_all(
    ada: Ledger, eve: Ledger, run_dir: RunDir, what: str
) -> None:
    run_id = run_dir.path.name
    assert EVERYONE[what](eve) == {run_id}
    assert eve.runs() == []
    assert eve.sites(filters={}) == []
    assert eve.sites(filters={}, everyone=True) == ["devcluster"]
    partition = ada.known([run_id])[run_id].attempts[0].partition or "gpu"
    seen = {
        ledger.observed(
            frozenset(Cause), site="devcluster", partition=partition, since=_EARLY, now=_LATE
        )
        for ledger in (ada, eve)
    }
    assert len(seen) == 1


@pytest.mark.parametrize("what", EVERYONE)
def test_no_list_shows_what_eve_says_of_a_run_of_adas(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir, what: str
) -> None:
    before = EVERYONE[what](ada)
    views = ada.runs(everyone=True)
    spent = ada.spending(filters={}, everyone=True)
    server.as_eve(database, copied("run", state="'failed'", project="'other'"), copied("attempt"))
    assert EVERYONE[what](ada) == before == {run_dir.path.name}
    assert ada.runs(everyone=True) == views
    assert ada.spending(filters={}, everyone=True) == spent


@pytest.mark.usefixtures("run_dir")
def test_a_run_of_which_ada_has_no_row_is_not_looked_up_in_eves(
    server: SharedServer,
    database: str,
    ada: Ledger,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a command would ask eve's scheduler, or restore from eve's store."""
    purged = RunDir(home.parent / "scratch/tests/digits-20260301-purged77")
    run_id = purged.path.name
    monkeypatch.setenv("HPCFLOW_LEDGER", server.url(database, server.ada))
    server.as_eve(
        database,
        copied("run", run_id=f"'{run_id}'", site="'/tmp/eve/site.yaml'"),
        copied("attempt", run_id=f"'{run_id}'"),
    )
    with pytest.raises(NotFoundError):
        ada.run(run_id)
    session = Session()
    with pytest.raises(StorageError):
        session.site_of(purged)
    assert session.known_attempts(purged) == 0
    session.ledger.close()


def test_rows_of_eve_about_a_run_of_adas_count_neither_as_evidence_nor_as_costs(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir
) -> None:
    before = _counted(ada, run_dir)
    server.as_eve(
        database,
        copied("run", state="'completed'"),
        copied("attempt", state="'ended'", cause="'node_fail'", ended_at="started_at"),
        "INSERT INTO mirrored (run_id, path, url, train_step, state, at, size_bytes) SELECT "
        f"'{run_dir.path.name}', 'checkpoints/9', 's3://eve/x', 9, 'removed', '2020-01-01', 1",
    )
    assert _counted(ada, run_dir) == before


def _counted(ledger: Ledger, run_dir: RunDir) -> list[object]:
    all_causes, site = frozenset(Cause), "devcluster"
    partition = ledger.run(run_dir.path.name).run.partition
    return [
        ledger.ends(list(Cause), since=_EARLY, until=_LATE),
        ledger.observed(all_causes, site=site, partition=partition, since=_EARLY, now=NOW),
        ledger.left([site], _LATE, everyone=True),
        ledger.mirrored([run_dir.path.name], everyone=True),
    ]


_JSON: Final = {"tags": "run", "metrics": "run", "resources": "run"} | dict.fromkeys(
    ("nodes", "journal", "report", "parts"), "attempt"
)


_PART: Final = "{{" + ",".join(f'"{name}":null' for name in columns(PartRow)) + "}}"


def _many(column: str, kb: int) -> list[str]:
    """Rows of eve's with many small values, which take far more memory than their text."""
    text = {
        "tags": "'[\"\"' || repeat(',\"\"', {0} / 3) || ']'",
        "nodes": "'[\"\"' || repeat(',\"\"', {0} / 3) || ']'",
        "parts": f"'[{_PART}' || repeat(',{_PART}', {{0}} / {len(_PART)}) || ']'",
        "metrics": "'{{\"a\":1' || (SELECT string_agg(',\"' || x || '\":1', '') "
        "FROM generate_series(1, {0} / 9) AS x) || '}}'",
    }.get(column, "'{{\"usage\":[[]' || repeat(',[]', {0} / 3) || ']}}'")
    value = f"({text.format(kb * 1000 - 300)})::json"
    of_run, of_attempt = ({column: value}, {}) if _JSON[column] == "run" else ({}, {column: value})
    run_id, ended = "'eve' || number", {"cause": "'preempted'", "ended_at": "started_at"}
    return [
        copied("run", 300, run_id=run_id, **of_run),
        copied("attempt", 300, run_id=run_id, **ended, **of_attempt)
        + " WHERE attempt.owner <> current_user AND attempt.attempt = 1",
    ]


#: A large value in a row of eve's, or many of them.
HUGE: Final[dict[str, list[str]]] = {
    "a site": [copied("run"), "UPDATE run SET site = repeat('x', 100000000)"],
    "a name": [copied("run"), "UPDATE run SET name = repeat('x', 100000000)"],
    "tags": [copied("run"), "UPDATE run SET tags = to_json(repeat('x', 100000000))"],
    "a run directory": [copied("run"), "UPDATE run SET run_dir = repeat('x', 100000000)"],
    "reports": [
        copied("run", run_id="'eve'"),
        copied("attempt", run_id="'eve'", cause="'preempted'", ended_at="now()"),
        "UPDATE attempt SET report = CAST('{\"x\": \"' || repeat('x', 16000000) || '\"}' AS json)",
    ],
    "ids": [copied("run", 450, run_id="'eve' || number || repeat('x', 150000)")],
    **{f"{name} of {kb} KB of lists": _many(name, kb) for name in _JSON for kb in (48, 16, 4)},
}


@pytest.mark.parametrize("what", HUGE)
def test_no_huge_value_of_eve_costs_memory(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir, what: str
) -> None:
    _ask_all(ada)
    server.as_eve(database, *HUGE[what])
    before = _reset_peak_kb()
    listed = _ask_all(ada)
    assert _peak_kb() - before < 60_000
    assert run_dir.path.name in listed


@pytest.mark.parametrize("what", ["runs", "used"])
def test_only_so_much_of_eve_is_read_however_many_rows_she_writes(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir, warnings: list[str],
    monkeypatch: pytest.MonkeyPatch, what: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(codec, "_MAX_OF_ROLE", 200_000)
    codec.selected.cache_clear()
    try:
        server.as_eve(database, *_many("tags" if what == "runs" else "journal", 4))
        found = EVERYONE[what](ada)
    finally:
        codec.selected.cache_clear()
    assert run_dir.path.name in found
    assert 1 < len(found) < 100
    assert "more runs are left out" in warnings[-1]


def test_no_row_of_eve_is_looked_through_for_garbage(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir
) -> None:
    """This takes longer than to read the rows, again and again."""
    server.as_eve(database, *_many("journal", 15))
    looks: list[object] = []

    def look_on(phase: str, _: dict[str, int]) -> None:
        looks.append(phase)

    gc.callbacks.append(look_on)
    try:
        assert len(ada.used(since=_EARLY, everyone=True)) > 300
    finally:
        gc.callbacks.remove(look_on)
    assert len(looks) < 20
    del run_dir


def _ask_all(ledger: Ledger) -> list[str]:
    """Ask for everything that is of all users; the ids that are listed."""
    for ask in EVERYONE.values():
        ask(ledger)
    ledger.sites(filters={}, everyone=True)
    ledger.left(["devcluster"], _EARLY, everyone=True)
    ledger.observed(frozenset(Cause), site="devcluster", partition="gpu", since=_EARLY, now=_LATE)
    return [each.run_id for each in ledger.runs(everyone=True)]


def _reset_peak_kb() -> int:
    """Begin to measure the most memory that is taken, which other tests may have taken before."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak_kb()


def _peak_kb() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def test_damaged_rows_of_eve_are_left_out_with_one_warning(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir, warnings: list[str]
) -> None:
    server.as_eve(database, copied("run", run_id="'eve'", tags="'7'::json", user_name="'eve'"))
    for _ in range(2):
        assert _ask_all(ada) == [run_dir.path.name]
    (warning,) = warnings
    assert "run eve of user eve is left out" in warning


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("GRANT TRIGGER ON run TO {eve}", "the right TRIGGER on the table 'run'"),
        ("GRANT TRUNCATE ON lease TO {eve}", "the right TRUNCATE"),
        ("GRANT REFERENCES (run_id) ON attempt TO {eve}", "the right REFERENCES"),
        ("GRANT ALL ON source TO PUBLIC", "'PUBLIC' the right"),
        ("ALTER TABLE checkpoint OWNER TO {eve}", "the table 'checkpoint' of 'eve_"),
        (f"ALTER TABLE {VERSION_TABLE} OWNER TO {{eve}}", f"the table '{VERSION_TABLE}' of 'eve_"),
        ("ALTER SCHEMA public OWNER TO {eve}", "the schema 'public' of 'eve_"),
        ("GRANT CREATE ON SCHEMA public TO {eve}", "create functions and operators"),
        ("GRANT CREATE ON SCHEMA public TO PUBLIC", "lets 'PUBLIC' create"),
    ],
)
def test_a_database_in_which_eve_could_change_rows_of_ada_is_refused(
    server: SharedServer, database: str, harm: str, told: str
) -> None:
    server.administer(harm.format(eve=server.eve), database)
    with pytest.raises(LedgerError, match=told.replace("(", r"\(")) as caught:
        open_ledger(server.url(database, server.ada))
    assert "ask the owner of the database" in (caught.value.next_action or "")
    assert not caught.value.retryable


def test_a_superuser_is_refused_where_others_may_write(
    server: SharedServer, database: str, postgres_server: Postgres
) -> None:
    url = postgres_server.url(database)
    with pytest.raises(LedgerError, match="your role bypasses row-level security"):
        open_ledger(url)
    server.as_ada(database, f"REVOKE ALL ON {', '.join(_TABLES)} FROM {server.eve}")
    open_ledger(url).close()


@pytest.mark.parametrize("is_shared", [False, True])
def test_an_upgrade_keeps_the_rows_that_no_other_role_could_have_written(
    server: SharedServer, database: str, is_shared: bool
) -> None:
    """Nobody can tell which of the others are true."""
    url = server.url(database, server.ada)
    _go_back_to_0005(server, database)
    names = "name, user_name, project, site, framework, run_dir, partition, nodes, gpus"
    server.as_ada(
        database,
        f"INSERT INTO run (run_id, {names}, created_at, resources, command, params, data, tags, "
        "state, attempts, metrics, is_estimate, journal, bytes_read) VALUES ('r', 'r', 'ada', 'p', "
        "'devcluster', '', '/r', '', 1, 0, now(), '{}', '[]', '{}', '{}', '[]', 'completed', 0, "
        "'{}', false, '{}', 0)",
    )
    if is_shared:
        server.as_ada(database, f"GRANT INSERT ON run TO {server.eve}")
    upgrade(parse_url(url))
    with open_ledger(url) as ledger:
        assert [each.run_id for each in ledger.runs()] == ([] if is_shared else ["r"])


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("VIEW {schema}.lag AS SELECT * FROM mirror_lag", "lag depends on view mirror_lag"),
        ("TABLE {schema}.copy (kept run)", 'column "copy.kept" uses its row type'),
    ],
)
def test_an_upgrade_names_what_another_role_has_made_of_the_tables(
    server: SharedServer, database: str, made: str, named: str
) -> None:
    """Such as a view for a dashboard. Postgres does not change a table that is in use."""
    _go_back_to_0005(server, database)
    server.as_ada(database, f"GRANT SELECT ON mirror_lag, run TO {server.eve}")
    schema = f"hpcflow_studies_{server.eve}"
    server.administer(f"CREATE SCHEMA {schema} AUTHORIZATION {server.eve}", database)
    server.as_eve(database, f"CREATE {made.format(schema=schema)}")
    with pytest.raises(LedgerError, match=named) as caught:
        upgrade(parse_url(server.url(database, server.ada)))
    assert "drop it; then: hpcflow ledger upgrade" in (caught.value.next_action or "")


def _go_back_to_0005(server: SharedServer, database: str) -> None:
    """The tables as they were before rows had owners."""
    _go_back_to_0006(server, database)
    server.as_ada(
        database,
        f"REVOKE ALL ON {', '.join(RELATIONS)} FROM {server.eve}",
        "DROP VIEW mirror_lag",
        *(f"DROP POLICY own ON {table}" for table in _TABLES),
        *(f"DROP POLICY everyone ON {table}" for table in _TABLES),
        *(
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY"
            for table in _TABLES
        ),
        *(f"ALTER TABLE {table} DROP COLUMN owner CASCADE" for table in _TABLES),
        "ALTER TABLE run ADD PRIMARY KEY (run_id)",
        "ALTER TABLE lease ADD PRIMARY KEY (name)",
        "ALTER TABLE attempt ADD PRIMARY KEY (run_id, attempt)",
        *(
            f"ALTER TABLE {table} ADD PRIMARY KEY (run_id, path)"
            for table in ("checkpoint", "mirrored", "source")
        ),
        *(
            f"ALTER TABLE {table} ADD FOREIGN KEY (run_id) REFERENCES run ON DELETE CASCADE"
            for table in ("attempt", "checkpoint", "mirrored", "source")
        ),
        "CREATE VIEW mirror_lag AS SELECT run_id FROM run",
        f"UPDATE {VERSION_TABLE} SET version_num = '0005'",
    )


def _go_back_to_0006(server: SharedServer, database: str) -> None:
    """The tables as they were before attempts had accounts."""
    _go_back_to_0007(server, database)
    server.as_ada(
        database,
        "ALTER TABLE attempt DROP COLUMN account, DROP COLUMN parts",
        f"UPDATE {VERSION_TABLE} SET version_num = '0006'",
    )


def _go_back_to_0007(server: SharedServer, database: str) -> None:
    """The tables as they were when the next action was a text."""
    server.as_ada(
        database,
        "ALTER TABLE run DROP COLUMN next_rule, DROP COLUMN next_why",
        f"UPDATE {VERSION_TABLE} SET version_num = '0007'",
    )


def test_an_upgrade_takes_the_next_actions_of_all_roles_apart(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir
) -> None:
    catch_up(ada, [run_dir])
    server.as_eve(database, copied("run"), copied("attempt"))
    _go_back_to_0007(server, database)
    text = "UPDATE run SET next_action = 'standby: job 4711 waits'"
    server.as_ada(database, text)
    server.as_eve(database, text.replace("standby: job 4711 waits", "notice: stalled"))
    stall = 'UPDATE attempt SET journal = \'{"stall": {"why": "silent"}}\''
    server.as_eve(database, stall)
    upgrade(parse_url(server.url(database, server.ada)))
    connection = ada.connection()
    asked = "SELECT next_action, next_rule, next_why FROM run ORDER BY next_action"
    assert connection.rows(asked) == [("await_standby", None, "job 4711")]
    with connection.transaction(write=False, everyone=True):
        told = connection.rows(asked)
    assert told == [("await_standby", None, "job 4711"), ("notice", "stalled", "silent")]


def test_an_upgrade_fills_the_accounts_of_all_roles_and_gives_none_new_rights(
    server: SharedServer, database: str, ada: Ledger, run_dir: RunDir
) -> None:
    grow(run_dir.journal, say.accounted(1, "1", account="physics"))
    catch_up(ada, [run_dir])
    server.as_eve(database, copied("run"), copied("attempt"))
    _go_back_to_0006(server, database)
    upgrade(parse_url(server.url(database, server.ada)))
    assert check(ada, [run_dir]) == []
    connection = ada.connection()
    asked = "SELECT account FROM attempt ORDER BY attempt"
    assert connection.rows(asked) == [("physics",), (None,)]
    with connection.transaction(write=False, everyone=True):
        assert [account for (account,) in connection.rows(asked)] == ["physics"] * 2 + [None] * 2
    connection.execute("DELETE FROM attempt")
    with connection.transaction(write=False, everyone=True):
        assert len(connection.rows(asked)) == 2, "those of eve"
