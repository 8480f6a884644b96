"""Mirror runs to an object store: completed checkpoints and the small files.

:mod:`hpcflow.mirror.layout` says where things lie there, :mod:`hpcflow.mirror.remote` how they are
reached. Nothing here opens the ledger: it works on run directories alone, also on a compute node.
"""
