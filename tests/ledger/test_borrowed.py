"""What another role puts into a shared Postgres is not executed with the rights of its users."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from hpcflow.errors import LedgerError
from hpcflow.ledger.store import open_ledger

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
}
HARMLESS: Final = {
    "a function of another name": [_FUNCTION.format(name="mine", types="varchar")],
    "a table": ["CREATE TABLE public.theirs (name text)"],
}


class Shared:
    """A ledger in which somebody else may make things."""

    def __init__(self, url: str) -> None:
        self.url, self._eve = url, f"eve_{secrets.token_hex(4)}"
        self.own(f"CREATE ROLE {self._eve}", "CREATE TABLE public.taken (who text)")
        self.own(f"GRANT ALL ON SCHEMA public TO {self._eve}")
        self.own(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {self._eve}")

    def own(self, *statements: str) -> None:
        with self._connect() as connection:
            for sql in statements:
                connection.execute(sql.encode())

    def eve(self, *statements: str) -> None:
        self.own(f"SET ROLE {self._eve}", *statements)

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


@pytest.mark.parametrize("kind", BORROWED)
def test_what_the_owner_of_the_database_made_is_theirs_to_make(shared: Shared, kind: str) -> None:
    shared.own(*BORROWED[kind])
    open_ledger(shared.url).close()


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_nobody_calls_is_no_reason(shared: Shared, kind: str) -> None:
    shared.eve(*HARMLESS[kind])
    open_ledger(shared.url).close()
