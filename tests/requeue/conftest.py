"""Databases for the tests of this package."""

from tests.ledger.databases import databases, ledger_url

__all__ = ["databases", "ledger_url"]
