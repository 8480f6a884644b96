"""Mirror runs to an object store: completed checkpoints and the small files.

:mod:`hpcflow.mirror.layout` defines the names in the store, :mod:`hpcflow.mirror.remote` the access
to it. Nothing here opens the ledger: run directories are enough, also on a compute node.
"""
