"""Publish the study of a sweep in a database, for Optuna's own tools.

===========  =======================================================================================
publish.py   updates the study after each round
place.py     the database and its URL
marks.py     remembers what was written
database.py  opens the database through Optuna, and writes changes in transactions
rows.py      writes trials as rows of Optuna's tables
faults.py    explains errors
===========  =======================================================================================
"""
