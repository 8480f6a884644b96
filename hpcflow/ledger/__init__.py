"""Index the files of all runs in a database that can be rebuilt from them at any time.

==================  ================================================================================
``rows.py``         the rows as plain values: what is folded, written and read
``fold.py``         journal record or event -> facts of a run. Pure
``derive.py``       facts of a run -> its rows. Pure
``store.py``        :class:`~hpcflow.ledger.store.Ledger`: the only writer; ``*queries.py`` read
``connection.py``   SQL over sqlite3 and psycopg
``tables.py``       the tables (sqlmodel), for migrations and for users who query with an ORM
``upgrade.py``      creating and migrating a database (alembic), ``migrations/``
==================  ================================================================================

Importing SQLAlchemy takes a third of a second. Commands import it only to create or migrate a
database.
"""
