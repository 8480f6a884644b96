"""A Postgres server that does not answer although its machine does."""

from __future__ import annotations

import os
import signal

import pytest

from hpcflow.errors import LedgerError
from hpcflow.ledger import connection
from hpcflow.ledger.store import open_ledger
from tests.ledger.databases import databases, ledger_url

__all__ = ["databases", "ledger_url"]


@pytest.mark.postgres
@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_stopped_server_is_given_up(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_TIMEOUT_S", 1.5)
    with open_ledger(ledger_url) as ledger:
        ((pid,),) = ledger.connection().rows("SELECT pg_backend_pid()")
        os.kill(pid, signal.SIGSTOP)
        try:
            for write in (False, True):
                with (
                    pytest.raises(LedgerError, match="the server does not answer"),
                    ledger.connection().transaction(write=write),
                ):
                    pass
                if not write:
                    ((other,),) = ledger.connection().rows("SELECT pg_backend_pid()")
                    os.kill(other, signal.SIGSTOP)
        finally:
            os.kill(pid, signal.SIGCONT)
            os.kill(other, signal.SIGCONT)
        assert ledger.runs() == []
