"""Restore runs from the mirror to scratch: their history and their checkpoints.

A run directory is made in a hidden folder and appears atomically. If a part of one is left, only
missing files are added; newer ones stay. :mod:`.objects` selects the objects to fetch,
:mod:`.remote_run` reads a run in a store, :mod:`.journals` merges journals, :mod:`.moving` moves a
run to another cluster, :mod:`.restore` does the restore.
"""
