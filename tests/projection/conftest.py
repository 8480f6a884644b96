"""As for the ledger: every test that takes ``ledger`` runs on SQLite and on real Postgres."""

from __future__ import annotations

from tests.ledger.databases import both_databases, database, databases, ledger, ledger_url

__all__ = ["both_databases", "database", "databases", "ledger", "ledger_url"]
