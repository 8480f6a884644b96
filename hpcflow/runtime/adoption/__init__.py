"""Adopt checkpoints that the program writes in its own format: copy them as checkpoints of the run.

::

    out/checkpoint-500/…                                         the program's; never changed
    checkpoints/000000500/adopted/checkpoint-500/…               a copy, with checksums
    checkpoints/000000500/manifest.json                          written last
    adoption.json                                                what is not to be adopted (again)

The job script calls it three times (``python3 -m hpcflow.runtime adopt …``): ``begin`` before the
program starts, ``watch`` while it runs, ``end`` after it. Each may be killed at any point: an
adopted checkpoint appears at once, and the next call does what is left.
"""
