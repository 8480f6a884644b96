"""Schedulers. :mod:`.base` is the contract; the other modules implement it.

:func:`hpcflow.launch.connecting.connect` selects the scheduler of a site. No module here depends
on runs, the ledger or run directories.
"""
