"""Index the files of all runs in a database that can be rebuilt from them at any time.

Importing SQLAlchemy takes a third of a second. Commands import it only to create or migrate a
database.
"""
