"""A study beside a ledger in Postgres: in a schema of its own, with whatever can be wrong there."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hpcflow.ledger.url import parse_url
from hpcflow.settings import load_settings
from hpcflow.sweeps.published.database import _connect_postgres
from hpcflow.sweeps.published.place import schema_of
from hpcflow.testing.cluster import Postgres
from hpcflow.testing.cluster.packages import require_postgres
from tests.sweeps import publish_driver
from tests.sweeps.publishing import Searched
from tests.sweeps.test_published import TREE, warning_of

pytestmark = pytest.mark.postgres

SCHEMA = schema_of(load_settings({"HOME": "/nowhere"}))


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    """An empty database."""
    name = f"studies_{secrets.token_hex(8)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def sweep(tmp_path: Path, url: str) -> Searched:
    return Searched(tmp_path, url)


def connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """Somebody else."""
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def tables(url: str) -> set[tuple[object, ...]]:
    with connect(url) as other:
        sql = "SELECT schemaname FROM pg_tables WHERE schemaname NOT LIKE 'pg_%'"
        return set(other.execute(sql)) - {("information_schema",)}


@pytest.fixture
def guest(url: str) -> Iterator[str]:
    """The URL of a role that may connect, and no more."""
    role, password = f"guest_{secrets.token_hex(4)}", "se{c}ret%2F"
    with connect(url) as other:
        other.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'se{{c}}ret/'".encode())
    server = url.rpartition("@")[2]
    yield f"postgresql://{role}:{password}@{server}"
    with connect(url) as other:
        other.execute(f"DROP OWNED BY {role} CASCADE".encode())
        other.execute(f"DROP ROLE {role}".encode())


def test_it_is_shown_by_optuna_and_stays_in_its_schema(sweep: Searched, url: str) -> None:
    sweep.grows(9)
    sweep.reports(4, (11, None), (12, 0.875), (2**40, 0.5))
    assert sweep.publish() is None
    assert tables(url) == {(SCHEMA,)}
    sweep.records.pop()
    sweep.reports(4, (11, None), (12, 0.875))  # no integer of Postgres is as large as the third
    sweep.require_same()
    sweep.tells(4, "complete", 0.75)
    sweep.grows(3)
    assert sweep.publish() is None
    sweep.require_same()
    best = sweep.progress.best()
    assert best is not None
    assert best.values == [sweep.study().best_value] == [0.75]


def test_killed_at_any_change_it_doubles_and_loses_nothing(url: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.sweeps.publish_driver", str(tmp_path), url]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=TREE)
    assert done.returncode == 0, done.stderr
    changes = int(done.stdout)
    assert changes > 10
    for number in range(changes, publish_driver.STRIDE, -publish_driver.STRIDE):
        sweep = publish_driver.sweep_of(tmp_path, url, number)
        publish_driver.first(sweep)
        publish_driver.later(sweep)
        sweep.require_same()


def test_several_who_make_it_at_once_are_no_trouble(url: str, tmp_path: Path) -> None:
    sweeps = [Searched(tmp_path, url, name=f"search{number}") for number in range(4)]
    threads = []
    for sweep in sweeps:
        sweep.grows(5)
        threads.append(threading.Thread(target=sweep.publish))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sweep in sweeps:
        assert sweep.publish() is None
        sweep.require_same()


def test_a_role_without_permission_is_told_what_a_dba_has_to_type(
    url: str, guest: str, tmp_path: Path, postgres_server: Postgres
) -> None:
    sweep = Searched(tmp_path, guest)
    sweep.grows(3)
    said = warning_of(sweep)
    assert "permission denied" in said
    _let_a_dba_type(said, url, postgres_server)
    assert sweep.publish() is None
    sweep.require_same()


def _let_a_dba_type(said: str, url: str, server: Postgres) -> None:
    assert "se{c}ret" not in said
    typed = shlex.split(said.rpartition("let a DBA type: ")[2])
    assert typed[:2] == ["psql", url.rpartition("/")[2]]
    saved = psycopg.conninfo.conninfo_to_dict(server.url().replace("+psycopg", ""))
    login = {f"PG{name.upper()}": str(saved[name]) for name in ("host", "port", "user", "password")}
    program = str(require_postgres() / "psql")
    subprocess.run([program, *typed[1:]], check=True, capture_output=True, env=os.environ | login)


@contextmanager
def stranger(url: str, guest: str) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """A connection, and a role that may make things in the schema of the studies."""
    role = guest.partition("://")[2].partition(":")[0]
    with connect(url) as other:
        other.execute("CREATE TABLE public.taken (who text)")
        other.execute(f"GRANT ALL ON public.taken TO {role}".encode())
        other.execute(f"GRANT ALL ON SCHEMA {SCHEMA} TO {role}".encode())
        yield other, role


def test_nothing_of_another_role_is_executed_as_this_one(
    url: str, guest: str, tmp_path: Path
) -> None:
    """All who publish may make things in the schema of the studies."""
    sweep = Searched(tmp_path, url)
    assert sweep.publish() is None
    with stranger(url, guest) as (other, role):
        other.execute(f"SET ROLE {role}".encode())
        other.execute(
            f"CREATE FUNCTION {SCHEMA}.mine(varchar, varchar) RETURNS bool LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO public.taken VALUES (current_user); "
            "RETURN $1::text = $2::text; END $$".encode()
        )
        other.execute(
            f"CREATE OPERATOR {SCHEMA}.= "
            f"(LEFTARG=varchar, RIGHTARG=varchar, FUNCTION={SCHEMA}.mine)".encode()
        )
        other.execute("RESET ROLE")
        sweep.asks()
        warning = sweep.publish()
        assert warning is not None
        assert f"the operator '=' of '{role}'" in warning
        assert "→ ask the owner of the database" in warning
        assert other.execute("SELECT * FROM public.taken").fetchall() == []


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_schema_that_another_role_prepared_does_not_become_that_of_the_studies(
    url: str, guest: str, is_dropped: bool
) -> None:
    role = guest.partition("://")[2].partition(":")[0]
    database, theirs = parse_url(url), f"{url}?options=-csearch_path%3D{SCHEMA}"
    with connect(url) as other:
        other.execute("CREATE TABLE public.taken (who text)")
        other.execute(f"GRANT ALL ON public.taken TO {role}".encode())
        if is_dropped:
            _connect_postgres(database, theirs, SCHEMA).close()
            other.execute(f"DROP SCHEMA {SCHEMA}".encode())
        name = url.rpartition("/")[2]
        other.execute(f"GRANT CREATE ON DATABASE {name} TO {role}".encode())
        other.execute(f"SET ROLE {role}".encode())
        for statement in (
            "CREATE SCHEMA ready",
            "CREATE FUNCTION ready.mine() RETURNS int LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO public.taken VALUES (current_user); RETURN 12; END $$",
            "CREATE VIEW ready.version_info AS SELECT ready.mine() AS version_info_id",
            "GRANT ALL ON SCHEMA ready TO PUBLIC",
            "GRANT ALL ON ready.version_info TO PUBLIC",
        ):
            other.execute(statement.encode())
        with closing(_connect_postgres(database, theirs, SCHEMA)) as raw:
            with pytest.raises(psycopg.errors.DuplicateSchema):
                other.execute(f"ALTER SCHEMA ready RENAME TO {SCHEMA}".encode())
            with pytest.raises(psycopg.errors.UndefinedTable):
                raw.execute("SELECT * FROM version_info")
        other.execute("RESET ROLE")
        assert other.execute("SELECT * FROM public.taken").fetchall() == []


def test_a_wrong_password_is_a_warning_that_does_not_show_it(url: str, tmp_path: Path) -> None:
    server = url.rpartition("@")[2]
    sweep = Searched(tmp_path, f"postgresql://hpcflow:s3cr3t@{server}")
    sweep.grows(1)
    said = warning_of(sweep)
    assert "password authentication failed" in said
    assert "s3cr3t" not in said


def test_a_study_that_somebody_locks_is_given_up_soon(sweep: Searched, url: str) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.grows(2)
    with connect(url) as other, other.transaction():
        other.execute(f"LOCK TABLE {SCHEMA}.trials IN ACCESS EXCLUSIVE MODE".encode())
        assert "lock timeout" in warning_of(sweep)
    assert sweep.publish() is None
    sweep.require_same()


def test_tables_of_an_older_optuna_are_said_to_be(sweep: Searched, url: str) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    with connect(url) as other:
        other.execute(f"UPDATE {SCHEMA}.alembic_version SET version_num = 'v3.0.0.d'".encode())
    sweep.grows(2)
    said = warning_of(sweep)
    typed = shlex.split(said.rpartition("→ ")[2])
    login = url.removeprefix("postgresql+psycopg://").partition("@")[0]
    assert typed[:4] == ["optuna", "storage", "upgrade", "--storage"]
    assert typed[4] == f"{url.replace(login, 'hpcflow')}?options=-csearch_path%3D{SCHEMA}"


def test_a_schema_that_was_dropped_is_made_again_with_the_next_news(
    sweep: Searched, url: str
) -> None:
    sweep.grows(2)
    assert sweep.publish() is None
    with connect(url) as other:
        other.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.require_same()


def test_a_server_that_is_down_or_stands_still_is_given_up_soon(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    sweep = Searched(tmp_path, own_postgres.create_database("studies"))
    sweep.grows(2)
    assert sweep.publish() is None
    sweep.grows(2)
    own_postgres.stop()
    assert "is the server up?" in warning_of(sweep)
    own_postgres.start()
    pid = own_postgres.daemon.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "timeout" in warning_of(sweep)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert sweep.publish() is None
    sweep.require_same()
