"""Rightsizing: compare resources requested and used, give advice, and estimate GPU memory.

What was used is seen in the job, by :mod:`hpcflow.runtime.sampling`, and comes to the ledger with
the other events. Nothing here reads a file or asks a scheduler.
"""
