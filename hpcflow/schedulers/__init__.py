"""Schedulers. :mod:`.base` is the contract; the other modules implement it.

Which one serves a site is decided by :func:`hpcflow.schedulers.registry.connect`. Nothing here
knows runs, the ledger or the run directory.
"""
