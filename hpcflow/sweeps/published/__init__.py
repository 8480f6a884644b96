"""Publish the study of a sweep in a database, for Optuna's own tools.

===========  =======================================================================================
publish.py   bringing it up to date, after each round
place.py     where it is, and its URL
marks.py     what of a sweep has been written
database.py  opened through Optuna; one transaction for what is missing
rows.py      trials as rows of Optuna's tables
faults.py    what went wrong, for people
===========  =======================================================================================
"""
