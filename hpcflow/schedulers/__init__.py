"""Talking to what runs jobs. :mod:`.base` is the contract; the rest are its implementations.

Which one serves a site is decided by :func:`hpcflow.schedulers.registry.connect`. Nothing here
knows runs, the ledger or the run directory.
"""
