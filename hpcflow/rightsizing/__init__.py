"""Right-sizing: what was asked for against what was used, advice, and GPU memory beforehand.

What was used is seen in the job, by :mod:`hpcflow.runtime.sampling`, and comes to the ledger with
the other events. Nothing here reads a file or asks a scheduler.
"""
