"""Checkpoints that the program writes in its own way, made checkpoints of the run.

::

    out/checkpoint-500/…                                         the program's; never changed
    checkpoints/000000500/adopted/checkpoint-500/…               a copy, with checksums
    checkpoints/000000500/manifest.json                          written last
    adoption.json                                                what is not to be adopted (again)

The job script calls it three times (``python3 -m hpcflow.runtime adopt …``): ``begin`` before the
program starts, ``watch`` beside it, ``end`` after it. Any of them may be killed anywhere: what
is adopted appears all at once, and the next of them finds what is left to do.

===============  ==================================================================================
rule.py          what a config says of how such checkpoints look
foreign.py       finding them; their names, train steps, and whether anything in them changed
whole.py         what is complete, and what proves it
copying.py       copying one, checksums and all; putting one back
memory.py        adoption.json
adopter.py       Adopter: all of that in its order
command.py       the three commands
===============  ==================================================================================
"""
