"""Every test that takes ``database`` runs on SQLite and on a real Postgres server."""

from __future__ import annotations

from tests.ledger.databases import database, databases, ledger, ledger_url

__all__ = ["database", "databases", "ledger", "ledger_url"]
