"""Supervise runs: decide what follows the end of an attempt, and do it.

:mod:`hpcflow.reconcile` queries Slurm about jobs, and :mod:`hpcflow.launch` submits them. Functions
that use the ledger raise LedgerError if the database does not answer.
"""
