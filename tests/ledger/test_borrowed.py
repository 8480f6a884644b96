"""What another role puts into a shared Postgres is not executed with the rights of its users."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final

import psycopg
import pytest

from hpcflow.errors import LedgerError
from hpcflow.ledger.connection import RELATIONS
from hpcflow.ledger.lease import acquire
from hpcflow.ledger.other_roles import refuse_other_roles
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.ledger.upgrade import HEAD, upgrade
from hpcflow.ledger.url import parse_url
from tests.ledger.roles import SharedServer
from tests.ledger.shared import server

__all__ = ["server"]

pytestmark = pytest.mark.postgres

_FUNCTION: Final = """
CREATE FUNCTION public.{name}({types}) RETURNS bool LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.taken VALUES (current_user); RETURN true; END $$
"""
#: What is found by its name before, or beside, what Postgres itself has.
BORROWED: Final = {
    "an operator": [
        _FUNCTION.format(name="mine", types="varchar, varchar"),
        "CREATE OPERATOR public.= (LEFTARG=varchar, RIGHTARG=varchar, FUNCTION=public.mine)",
    ],
    "a function of a better type": [_FUNCTION.format(name="lower", types="varchar")],
    "a trigger": [
        "CREATE FUNCTION public.mine() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO public.taken VALUES (current_user); RETURN NEW; END $$",
        "CREATE TRIGGER mine BEFORE INSERT ON run FOR EACH ROW EXECUTE FUNCTION public.mine()",
    ],
    "a foreign key, which deletes with triggers": [
        "CREATE TABLE public.theirs (run_id text, owner name, "
        "FOREIGN KEY (run_id, owner) REFERENCES run ON DELETE CASCADE)",
        "CREATE FUNCTION public.mine() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO public.taken VALUES (current_user); RETURN NULL; END $$",
        "CREATE TRIGGER mine AFTER DELETE ON public.theirs FOR EACH ROW "
        "EXECUTE FUNCTION public.mine()",
    ],
}
#: Postgres has functions for triggers, which are a superuser's; what the condition calls is not, or
#: it executes any statement, as ``query_to_xml`` does.
_HIDDEN: Final = _FUNCTION.replace("public.{name}", "hidden.mine")
_TRIGGER: Final = (
    "CREATE TRIGGER mine BEFORE UPDATE ON run FOR EACH ROW {condition} "
    "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
)
CONDITIONS: Final = {
    "a function": "hidden.mine(NEW.run_id)",
    "a statement": "query_to_xml('SELECT hidden.mine(NULL)', true, true, '') IS NULL",
    "the search path": "set_config('search_path', 'hidden, public', false) IS NULL",
    "columns": "OLD.name = NEW.name",
}
HARMLESS: Final = {
    "a function of another name": [_FUNCTION.format(name="mine", types="varchar")],
    "a table": ["CREATE TABLE public.theirs (name text)"],
    "a trigger with nothing but what is Postgres's own": [_TRIGGER.format(condition="")],
}


class Shared:
    """A ledger of ada's, in which eve could once make things, and what she made is still there."""

    def __init__(self, server: SharedServer) -> None:
        self._server, self.name = server, server.database()
        self.url = server.url(self.name, server.ada)
        self.own("CREATE TABLE public.taken (who text)", "GRANT ALL ON public.taken TO PUBLIC")
        self.administer(f"CREATE SCHEMA hidden AUTHORIZATION {server.eve}")

    def own(self, *statements: str) -> None:
        self._server.as_ada(self.name, *statements)

    def administer(self, sql: str) -> None:
        self._server.administer(sql, self.name)

    def eve(self, *statements: str) -> None:
        role = self._server.eve
        on_tables = "TRIGGER, REFERENCES ON ALL TABLES IN SCHEMA public"
        for rights in ("CREATE ON SCHEMA public", on_tables):
            self.administer(f"GRANT {rights} TO {role}")
        self._server.as_eve(self.name, *statements)
        for rights in ("CREATE ON SCHEMA public", on_tables):
            self.administer(f"REVOKE {rights} FROM {role}")

    def eve_makes_schema(self) -> None:
        name = self._server.ada
        self.administer(f"CREATE SCHEMA {name} AUTHORIZATION {self._server.eve}")
        self.administer(f"GRANT USAGE ON SCHEMA {name} TO PUBLIC")
        self.eve(f"CREATE VIEW {name}.hpcflow_version AS SELECT '{HEAD}'::text AS version_num")


@pytest.fixture
def shared(server: SharedServer) -> Shared:
    return Shared(server)


@pytest.mark.parametrize("kind", BORROWED)
def test_nothing_of_another_role_is_executed_as_this_one(shared: Shared, kind: str) -> None:
    shared.eve(*BORROWED[kind])
    with pytest.raises(LedgerError, match=r"eve_\w+") as caught:
        open_ledger(shared.url)
    assert "REVOKE CREATE" in (caught.value.next_action or "")
    assert not caught.value.retryable


@pytest.mark.parametrize("kind", CONDITIONS)
def test_a_trigger_has_no_condition(shared: Shared, kind: str) -> None:
    condition = f"WHEN ({CONDITIONS[kind]})"
    shared.eve(_HIDDEN.format(types="text"), _TRIGGER.format(condition=condition))
    with pytest.raises(LedgerError, match="the condition of the trigger 'mine'"):
        open_ledger(shared.url)


def test_a_schema_of_another_role_that_is_searched_first_is_not_used(shared: Shared) -> None:
    """It is found before all others, for it is named as this user."""
    shared.eve_makes_schema()
    with pytest.raises(LedgerError, match=r"the (schema|table) '\w+' of 'eve_\w+'"):
        open_ledger(shared.url)


def test_a_schema_that_is_made_while_a_daemon_is_connected_is_not_searched(
    server: SharedServer, shared: Shared
) -> None:
    ada = server.ada
    with open_ledger(shared.url) as ledger:
        _acquire(ledger)
        shared.eve_makes_schema()
        shared.eve(
            _FUNCTION.replace("public.{name}", f"{ada}.mine").format(types="varchar, varchar"),
            f"CREATE OPERATOR {ada}.= (LEFTARG=varchar, RIGHTARG=varchar, FUNCTION={ada}.mine)",
        )
        _acquire(ledger)
        ledger.runs(user="ada")
        assert ledger.connection().rows("SELECT * FROM taken") == []


@pytest.mark.parametrize(
    "path", ["hpcflow, public", "public, hpcflow", '"$user", hpcflow, public, pg_temp']
)
def test_a_schema_of_the_search_path_that_is_made_later_is_not_searched(
    server: SharedServer, shared: Shared, path: str
) -> None:
    shared.administer(f"ALTER ROLE {server.ada} SET search_path = {path}")
    shared.administer(f"GRANT CREATE ON DATABASE {shared.name} TO {server.eve}")
    try:
        with open_ledger(shared.url) as ledger:
            _acquire(ledger)
            shared.eve(
                "CREATE SCHEMA hpcflow",
                _FUNCTION.format(name="mine", types="text").replace("public.mine", "hpcflow.mine"),
                _FUNCTION.replace("public.{name}", "hpcflow.mine").format(types="varchar, varchar"),
                "CREATE OPERATOR hpcflow.= "
                "(LEFTARG=varchar, RIGHTARG=varchar, FUNCTION=hpcflow.mine)",
                "CREATE VIEW hpcflow.lease AS "
                "SELECT * FROM public.lease WHERE hpcflow.mine(name::text)",
                "GRANT ALL ON SCHEMA hpcflow TO PUBLIC",
                "GRANT ALL ON hpcflow.lease TO PUBLIC",
            )
            _acquire(ledger)
            ledger.runs(user="ada")
            assert ledger.connection().rows("SELECT * FROM public.taken") == []
        with pytest.raises(LedgerError, match=r"of 'eve_\w+'"):
            open_ledger(shared.url)
    finally:
        shared.administer(f"ALTER ROLE {server.ada} RESET search_path")


def test_a_schema_that_is_away_while_it_is_looked_at_is_not_searched(
    server: SharedServer, shared: Shared
) -> None:
    shared.administer(f"CREATE SCHEMA theirs AUTHORIZATION {server.eve}")
    shared.administer("GRANT USAGE ON SCHEMA theirs TO PUBLIC")
    shared.administer(f"GRANT CREATE ON DATABASE {shared.name} TO {server.eve}")

    class Renamed(psycopg.Connection[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            found = super().execute(query, *args, **options)
            if "current_schemas" in query:
                shared.eve("ALTER SCHEMA theirs RENAME TO away")
            return found

    url = f"{shared.url}?options=-csearch_path%3Dpublic,theirs"
    with (
        Renamed.connect(url, autocommit=True) as raw,
        pytest.raises(LedgerError, match="the schema 'theirs'"),
    ):
        refuse_other_roles(parse_url(shared.url), raw, RELATIONS)


def test_an_upgrade_looks_for_them_too(shared: Shared) -> None:
    shared.eve(*BORROWED["an operator"])
    with pytest.raises(LedgerError, match="the operator '='"):
        upgrade(parse_url(shared.url))


def _acquire(ledger: Ledger) -> None:
    now = datetime.now(timezone.utc)
    acquire(ledger, "x", holder="x", host="h", pid=1, ttl_s=60, now=now)


@pytest.mark.parametrize("kind", BORROWED)
def test_what_the_owner_of_the_database_made_is_theirs_to_make(shared: Shared, kind: str) -> None:
    shared.own(*BORROWED[kind])
    open_ledger(shared.url).close()


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_nobody_calls_is_no_reason(shared: Shared, kind: str) -> None:
    shared.eve(*HARMLESS[kind])
    open_ledger(shared.url).close()
