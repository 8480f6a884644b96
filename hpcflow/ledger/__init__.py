"""The database: an index of the files of all runs, which can be rebuilt from them at any time.

==================  ================================================================================
``rows.py``         the rows as plain values: what is folded, written and read
``fold.py``         journal record or event -> what is known of a run. Pure
``derive.py``       what is known of a run -> its rows. Pure
``store.py``        :class:`~hpcflow.ledger.store.Ledger`: the only writer; ``*queries.py`` read
``connection.py``   SQL over sqlite3 and psycopg
``tables.py``       the tables (sqlmodel), for migrations and for users who query with an ORM
``upgrade.py``      creating and migrating a database (alembic), ``migrations/``
==================  ================================================================================

SQLAlchemy takes a third of a second to import, so that commands do without it: they need it only
when a database has to be created or migrated.
"""
