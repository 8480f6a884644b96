"""What alembic runs: the migrations, on the connection and in the transaction of ``upgrade.py``."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

from hpcflow.ledger import tables
from hpcflow.ledger.connection import VERSION_TABLE

assert tables.Run.metadata is SQLModel.metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,  # SQLite alters a table by making it anew
)
with context.begin_transaction():
    context.run_migrations()
