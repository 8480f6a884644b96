"""What another role puts into a shared Postgres is not executed with the rights of its users."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Final

import psycopg
import pytest

from hpcflow.errors import LedgerError
from hpcflow.ledger.connection import connect_postgres
from hpcflow.ledger.lease import acquire
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.ledger.upgrade import upgrade
from hpcflow.ledger.url import parse_url

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
        "CREATE TABLE public.theirs (run_id text REFERENCES run ON DELETE CASCADE)",
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
_TRIGGER_FUNCTION: Final = BORROWED["a trigger"][0]
_ON_LEASE: Final = (
    "CREATE OR REPLACE TRIGGER mine BEFORE UPDATE ON public.lease FOR EACH ROW EXECUTE FUNCTION "
)
_BY_EVE: Final = f"{_ON_LEASE} public.mine()"
_BY_POSTGRES: Final = f"{_ON_LEASE} suppress_redundant_updates_trigger()"
HARMLESS: Final = {
    "a function of another name": [_FUNCTION.format(name="mine", types="varchar")],
    "a table": ["CREATE TABLE public.theirs (name text)"],
    "a trigger with nothing but what is Postgres's own": [_TRIGGER.format(condition="")],
}


class Shared:
    """A ledger in which somebody else may make things."""

    def __init__(self, url: str) -> None:
        self.url, self._eve = url, f"eve_{secrets.token_hex(4)}"
        self.own(f"CREATE ROLE {self._eve}", "CREATE TABLE public.taken (who text)")
        self.own(f"CREATE SCHEMA hidden AUTHORIZATION {self._eve}")
        self.own(f"GRANT ALL ON SCHEMA public TO {self._eve}")
        self.own(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {self._eve}")

    def own(self, *statements: str) -> None:
        with self._connect() as connection:
            for sql in statements:
                connection.execute(sql.encode())

    def eve(self, *statements: str) -> None:
        self.own(f"SET ROLE {self._eve}", *statements)

    def eve_makes_schema(self) -> None:
        self.own(
            f"CREATE SCHEMA hpcflow AUTHORIZATION {self._eve}",
            "SET ROLE " + self._eve,
            "CREATE VIEW hpcflow.hpcflow_version AS SELECT '0005'::text AS version_num",
        )

    def drop(self) -> None:
        self.own(f"DROP OWNED BY {self._eve} CASCADE", f"DROP ROLE {self._eve}")

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self.url.replace("postgresql+psycopg", "postgresql"), autocommit=True
        )


@pytest.fixture
def shared(ledger_url: str) -> Iterator[Shared]:
    if ledger_url.startswith("sqlite"):
        pytest.skip("a file is its owner's alone")
    shared = Shared(ledger_url)
    yield shared
    shared.drop()


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
    with pytest.raises(LedgerError, match=r"the schema 'hpcflow' of 'eve_\w+'"):
        open_ledger(shared.url)


def test_a_schema_that_is_made_while_a_daemon_is_connected_is_not_searched(shared: Shared) -> None:
    with open_ledger(shared.url) as ledger:
        _acquire(ledger)
        shared.eve_makes_schema()
        shared.eve(
            _FUNCTION.replace("public.{name}", "hpcflow.mine").format(types="varchar, varchar"),
            "CREATE OPERATOR hpcflow.= (LEFTARG=varchar, RIGHTARG=varchar, FUNCTION=hpcflow.mine)",
        )
        _acquire(ledger)
        ledger.runs(user="ada")
        assert ledger.connection().rows("SELECT * FROM taken") == []


def test_an_upgrade_looks_for_them_too(shared: Shared) -> None:
    shared.eve(*BORROWED["an operator"])
    with pytest.raises(LedgerError, match="the operator '='"):
        upgrade(parse_url(shared.url))


def _acquire(ledger: Ledger) -> None:
    now = datetime.now(timezone.utc)
    acquire(ledger, "x", holder="x", host="h", pid=1, ttl_s=60, now=now)


@pytest.mark.parametrize("is_there", [False, True], ids=["made", "replaced"])
def test_a_trigger_that_is_made_while_a_daemon_is_connected_is_not_executed(
    shared: Shared, is_there: bool
) -> None:
    shared.eve(_TRIGGER_FUNCTION)
    if is_there:
        shared.eve(_BY_POSTGRES)
    with open_ledger(shared.url) as ledger:
        _acquire(ledger)
        shared.eve(_BY_EVE)
        with pytest.raises(LedgerError, match=r"the trigger 'mine' of 'eve_\w+'"):
            _acquire(ledger)
        shared.own("DROP TRIGGER mine ON public.lease")
        _acquire(ledger)


def test_no_trigger_is_made_between_the_check_and_the_write(shared: Shared) -> None:
    shared.eve(_TRIGGER_FUNCTION)
    with (
        open_ledger(shared.url) as ledger,
        ledger.connection().transaction(write=True),
        pytest.raises(psycopg.errors.LockNotAvailable),
    ):
        shared.eve("SET lock_timeout TO 100", _BY_EVE)


def test_nor_is_one_that_is_made_while_an_upgrade_begins(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*args: Any, **options: Any) -> Any:
        raw = connect_postgres(*args, **options)
        shared.eve(_TRIGGER_FUNCTION, _BY_EVE.replace("lease", "hpcflow_version"))
        return raw

    monkeypatch.setattr("hpcflow.ledger.upgrade.connect_postgres", connected)
    with pytest.raises(LedgerError, match="the trigger 'mine'"):
        upgrade(parse_url(shared.url))


@pytest.mark.parametrize("kind", BORROWED)
def test_what_the_owner_of_the_database_made_is_theirs_to_make(shared: Shared, kind: str) -> None:
    shared.own(*BORROWED[kind])
    open_ledger(shared.url).close()


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_nobody_calls_is_no_reason(shared: Shared, kind: str) -> None:
    shared.eve(*HARMLESS[kind])
    open_ledger(shared.url).close()
