"""The history of the ledger's tables, for alembic; driven by ``hpcflow.ledger.upgrade``."""
