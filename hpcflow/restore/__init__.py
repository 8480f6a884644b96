"""Restore runs from the mirror to scratch: their history and their checkpoints.

A run directory is made in a hidden folder and appears all at once; where parts of one are
left, what is missing is put there, and nothing that is newer is touched. :mod:`.objects` says what
of a store becomes files here, :mod:`.remote_run` reads it, :mod:`.journals` decides between two
journals, :mod:`.moving` takes a run to another cluster, :mod:`.restore` does it all.
"""
